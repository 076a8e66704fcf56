// Package libzmq carries control messages over libzmq, by github.com/pebbe/zmq4: the same frames as package zmq, and the
// same contract, on the sockets that an LMCache process has itself. Peers cannot tell the two apart.
//
// Package zmq is the default, because it bounds what an unknown connection can take and its round trips are shorter.
// Choose this one (control.transport: libzmq) on a network of trusted hosts, to rule our own implementation of the wire
// protocol out while looking for a defect, or for a release of libzmq that a site has approved. It needs cgo and
// libzmq 4.1 or newer; in a build without cgo, Listen returns an error that says so.
//
// # Sockets
//
//	channels where one asks     server: one ROUTER     client: one DEALER for each Conn
//	channels that only tell     server: one PULL       client: one PUSH for each Conn
//
// A DEALER sends the empty frame that a REQ would send and, unlike a REQ, can be closed with an answer still due: that
// closes its connection, so that a late answer has nowhere to arrive. After an answer that cannot be taken, or in lockstep
// one that nobody asked for, a Conn gets a new socket for the same reason.
//
// # One owner at a time
//
// ZeroMQ's sockets must not be used by two threads at once, so a lock guards them all. Calls append to a bounded queue.
// The first call on an empty queue carries it out itself, where it hands over a message and the lock is free; else the
// reactor does, the one goroutine that receives. So a message leaves in the thread that had it, and nothing waits for a
// call but other calls.
//
// The reactor sleeps in Go's network poller, not in a thread: each socket's ZMQ_FD is in one epoll instance, and that
// instance is what the poller watches. A past read deadline wakes it for the queue.
//
// ZMQ_FD says "look again", once. It need not be ready although a message is: any call on a socket may have consumed the
// signal. So after everything that was done to a socket, either the reactor receives until EAGAIN, or the caller that did
// it asks whether a message is there and wakes the reactor if so.
//
// # What libzmq cannot bound
//
// ZMQ_MAXMSGSIZE bounds one frame, and ZMQ_RCVHWM counts messages. So, unlike in package zmq, an unknown connection can
//
//   - have memory without end: a message of many frames is held until its last frame has come, on servers and on clients;
//   - have memory for as long as it likes: a message that arrives slowly has no deadline (Config.Handshake bounds the
//     handshake);
//   - take a file of this process with each connection, without a bound for an address or in all. When the process has no
//     file left, libzmq's accept spins;
//   - leave up to Config.HighWater answers of Config.MaxMessage bytes unread;
//   - have all Config.MaxRequests of the table of unanswered requests, which are forgotten in their order then.
//
// Listen refuses a server that bounds connections (control.Env.GuestsMax) or is told of lost ones
// (control.Server.TellLost): libzmq tells nothing of either. So directories and gateways need package zmq.
//
// # What it does not tell
//
// It posts no ConnLost, because libzmq connects again by itself. A request whose server died stays unanswered until its
// Conn is closed; heartbeats find the dead connection so that the next request takes a live one. Open knocks at the peer
// first, with a connection of its own, so that Unreachable is known at once.
//
// Each message on a PULL has a Conn of its own, because a PULL does not say whose it is. A client that names its socket
// itself has one for each of its questions: somebody else may have connected under that name since. control.Stats counts
// no guests.
package libzmq
