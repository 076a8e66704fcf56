// Package libzmq carries control messages over the C library libzmq, by github.com/pebbe/zmq4. The package implements
// the same contract (control.Transport) and sends the same frames as package zmq, on the sockets that an LMCache
// process uses itself. A peer cannot tell which of the two packages is at the remote end.
//
// Package zmq is the default, because zmq bounds what an unknown connection can take, with shorter round trips. Choose
// libzmq (control.transport: libzmq) on a network of trusted hosts: to exclude kvferry's own implementation of the
// wire protocol while looking for a defect, or to run a release of libzmq that a site has approved. The package needs
// cgo and libzmq 4.1 or newer. In a build without cgo, Listen returns an error that says so.
//
// # Sockets
//
//	channels with requests      server: one ROUTER     client: one DEALER for each Conn
//	one-way channels            server: one PULL       client: one PUSH for each Conn
//
// A DEALER sends the empty frame that a REQ would send. Unlike a REQ, a DEALER can be closed while a reply is still
// due: that closes the connection, so that a late reply has nowhere to arrive. A Conn gets a new socket for the same
// reason after a malformed reply and, in lockstep, after a reply without a request.
//
// # Threads
//
// ZeroMQ's sockets must not be used by two threads at once, so one lock guards all sockets. Calls append commands to a
// bounded queue. If the queue was empty, the command is a message and the lock is free, the calling goroutine carries
// the command out itself; otherwise the reactor does, the only goroutine that receives. So a message leaves in the
// goroutine that sends, and a call never waits for anything but concurrent calls.
//
// The reactor sleeps in Go's network poller, not in a thread: the ZMQ_FD of each socket is in one epoll instance, and
// the poller watches that instance. A read deadline in the past wakes the reactor for the queue.
//
// ZMQ_FD signals "look again", once. The file may not be ready although a message is there, because any call on a
// socket may have consumed the signal. Therefore, after every operation on a socket, either the reactor receives until
// EAGAIN, or the goroutine that made the call checks whether a message is there and wakes the reactor if so.
//
// # What libzmq cannot bound
//
// ZMQ_MAXMSGSIZE bounds a single frame, and ZMQ_RCVHWM counts messages. So, unlike in package zmq, an unknown
// connection can
//
//   - occupy unlimited memory: a message of many frames is held until the last frame has arrived, in both directions;
//   - occupy memory for an unlimited time: a message that arrives slowly has no deadline (Config.Handshake bounds the
//     handshake);
//   - take a file of this process with each connection, without a bound per address or in all. When the process has no
//     file left, libzmq's accept spins;
//   - leave up to Config.HighWater replies of Config.MaxMessage bytes unread;
//   - fill all Config.MaxRequests of the table of unanswered requests; then the oldest requests are dropped.
//
// Listen refuses a configuration that bounds connections (control.Env.MaxInbound) or that wants lost connections
// reported (control.Server.ReportLost), because libzmq offers neither. So directories and gateways need package zmq.
//
// # Lost connections and clients
//
// This package posts no ConnLost, because libzmq reconnects by itself. A request to a server that died stays
// unanswered until the Conn is closed; heartbeats detect the dead connection, so that the next request takes a live
// connection. Open first probes the peer with a separate connection, so that an unreachable peer is reported at once.
//
// Each message on a PULL has a separate Conn, because a PULL does not name the client. A client that chose a name for
// the socket has a new Conn for each request: another process may have connected under that name since. control.Stats
// counts no inbound connections.
package libzmq
