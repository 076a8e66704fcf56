// Package zeromq holds what the two transports over ZeroMQ's protocol (control/zmq and control/libzmq) have in common:
// the frames around a body on each channel ([Frames], [CutRequest]), the table of unanswered requests ([Requests]),
// the check of host names, and the errors and log lines that name what an operator has to change. The package opens no
// socket.
//
// Example: a client that may have several requests in flight sends the frames
//
//	id (8 bytes) | empty | body
//
// and the server copies everything before the body in front of the reply. [Frames.CutReply] finds the request's id
// there.
package zeromq
