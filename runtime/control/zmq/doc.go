// Package zmq carries control messages over ZeroMQ, with the frames of plain REQ/REP and PUSH/PULL sockets, so that
// either end may be an unmodified LMCache process.
//
// # Who does what
//
//	ChannelInit, ChannelAlloc   server: as a ROUTER      client: one DEALER for each Conn
//	ChannelProxy, ChannelDone   server: as a PULL        client: one PUSH for each Conn
//
// Clients are libzmq's sockets. A DEALER sends the empty frame that REQ would send and, unlike REQ, can be closed with
// an answer still due: that closes the TCP connection, and so a late answer has nowhere to arrive. A Conn therefore
// never sees an older answer than the one it waits for.
//
// Servers are this package's own (package zmtp has the wire), because libzmq's take what anybody sends: a message of
// many frames is held until its last one has come, however many there are, and its accept spins when the process has no
// file left. Here a connection comes in through package door, is read by a goroutine of its own, holds one message of
// bounded size and frames, and has at most 16 questions in the machine's hands; what it sends beyond waits on the wire.
// Many REQ clients are served at once, each answered when the machine pleases, on the connection on which it asked.
// What is no question is handed on with an empty body, which is no message of any channel: so it is answered, instead
// of leaving its asker to wait for ever.
//
// # The reactor
//
// ZeroMQ's sockets must not be used by two threads at once, so a lock guards them all. Calls append to a bounded queue.
// The first call on an empty queue carries it out itself, where it hands over a message and the lock is free; else the
// reactor does, the one goroutine that receives. So a message leaves in the thread that had it, and nothing waits for a
// call but other calls.
//
// The reactor sleeps in Go's network poller, not in a thread: each socket's ZMQ_FD is in one epoll instance, and that
// instance is what the poller watches. A past read deadline wakes it for the queue.
//
// ZMQ_FD says "look again", once. It need not be ready although a message is: any call on a socket may have consumed
// the signal. So after everything that was done to a socket, either the reactor receives until EAGAIN, or who did it
// asks whether a message is there and wakes the reactor if so.
//
// # Addresses
//
// Open looks a name up (package names) and knocks at its addresses before it hands the first that answers to ZeroMQ:
// ZeroMQ would ask a name server in the thread that moves all messages, and tells nobody that a connection was refused.
// So Unreachable is known at once, with one line in the log, and a name that has another address leads to it with the
// next Open. A name is resolved to IPv4, as LMCache does, unless Config.IPv6 is set; IPv6 literals always work. What is
// bound is an address, an interface by its name, or the first address of a host name, which is looked up once, in
// Listen.
//
// # What it does not tell
//
// It posts no ConnLost: ZeroMQ reconnects by itself, to the same address. A request whose server died stays unanswered
// until its Conn is closed; heartbeats find the dead connection so that the next request takes a live one.
//
// # What is not bounded
//
// An answer of many frames: libzmq holds it as it arrives. Only who was asked can send one.
package zmq
