// Package zeromq is what the transports that speak ZeroMQ have in common, whatever moves their bytes: the frames of each
// channel, the table of unanswered requests, and what may be a host. It knows no socket.
package zeromq
