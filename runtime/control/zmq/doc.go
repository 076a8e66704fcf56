// Package zmq carries control messages over ZeroMQ, with the frames of plain REQ/REP and PUSH/PULL
// sockets, so that either end may be an unmodified LMCache process.
//
// # Sockets
//
//	ChannelInit, ChannelAlloc   server: one ROUTER      client: one DEALER for each Conn
//	ChannelProxy, ChannelDone   server: one PULL        client: one PUSH for each Conn
//
// A ROUTER serves many REQ clients at once and answers each when the machine pleases; REP would
// answer in lockstep with all of them. A DEALER sends the empty frame that REQ would send and, unlike
// REQ, can be closed with an answer still due: that closes the TCP connection, and so a late answer
// has nowhere to arrive. A Conn therefore never sees an older answer than the one it waits for.
//
// # One owner at a time
//
// ZeroMQ's sockets must not be used by two threads at once, so a lock guards them all. Calls append to a bounded
// queue. The first call on an empty queue carries it out itself, where it hands over a message and the lock is free; else
// the reactor does, the one goroutine that receives. So a message leaves in the thread that had it, and nothing waits for
// a call but other calls.
//
// The reactor sleeps in Go's network poller, not in a thread: each socket's ZMQ_FD is in one epoll instance, and
// that instance is what the poller watches. A past read deadline wakes it for the queue.
//
// ZMQ_FD says "look again", once. It need not be ready although a message is: any call on a socket may
// have consumed the signal. So after everything that was done to a socket, either the reactor receives until EAGAIN,
// or who did it asks whether a message is there and wakes the reactor if so.
//
// # Addresses
//
// A name is resolved to IPv4, as LMCache does, unless Config.IPv6 is set; IPv6 literals always work. What is bound is an
// address, an interface by its name, or the first address of a host name, which is looked up once, in Listen. ZeroMQ
// resolves names of peers in its I/O thread.
//
// # What it does not tell
//
// It posts no ConnLost: ZeroMQ reconnects by itself. A request whose server died stays unanswered until its
// Conn is closed; heartbeats find the dead connection so that the next request takes a live one.
package zmq
