// Package zmq carries control messages over ZeroMQ's wire protocol, with the frames of plain REQ/REP and PUSH/PULL
// sockets, so that either end may be an unmodified LMCache process.
//
// # Who does what
//
//	channels where one asks     server: as a ROUTER      client: as one DEALER for each Conn
//	channels that only tell     server: as a PULL        client: as one PUSH for each Conn
//
// Both ends are this package's own, over Go's connections; package zmtp has the wire. libzmq takes what anybody sends:
// a message of many frames is held until its last one has come, however many there are, whether it came to us or
// answers us; and its accept spins when the process has no file left. Here a message is of bounded size and frames in
// either direction. libzmq is the other end in tests.
//
// # Servers
//
// A connection comes in through package door, is read by a goroutine of its own, and has at most 16 questions in the
// machine's hands; what it sends beyond waits on the wire. Many REQ clients are served at once, each answered when the
// machine pleases, on the connection on which it asked. What is no question is handed on with an empty body, which is
// no message of any channel: so it is answered, instead of leaving its asker to wait for ever.
//
// # Clients
//
// A DEALER sends the empty frame that REQ would send and, unlike REQ, can be closed with an answer still due: that
// closes the connection, and so a late answer has nowhere to arrive. A Conn therefore never sees an older answer than
// the one it waits for. Whoever answers what was not asked, more than it should or without end loses its connection,
// with a line in the log, and the questions that this connection had end as Malformed.
//
// A Conn that was opened with a Window puts an id of 8 bytes before the empty frame: what a REP, or whoever serves as a
// ROUTER, gives back with its answer. So answers may come in any order. One under an id that no question in flight has
// is dropped and counted, with a line in the log: no other answer is mistaken for it. Without a Window not a byte is
// other than a REQ's.
//
// Open looks a name up (package names) and connects to the first of its addresses that answers; so Unreachable is
// known at once, with one line in the log. The Conn stays with that address. Its keeper, a goroutine, reads the
// connection. When the connection ends, the questions that it had end as PeerLost; nothing is ever sent twice. The
// keeper makes another connection while something waits for one, pausing longer and longer; if nothing does it ends,
// and begins again with the next message. So a peer that is away is asked when it is back, for as long as its asker
// has patience.
//
// A message is handed over by whoever calls, with a write that does not wait, once hands are shaken; what the system
// does not take at once its outbox writes. A Post is told when the system has all of it, and Refused when no
// connection has taken it within ConnectTimeout. Closing a Conn drops what waits; what was told has Linger to arrive.
//
// # Addresses
//
// A name that has another address leads to it with the next Open. A name is resolved to IPv4, as LMCache does, unless
// Config.IPv6 is set; IPv6 literals always work. What is bound is an address, an interface by its name, or the first
// address of a host name, which is looked up once, in Listen.
//
// # What it does not tell
//
// Of a Conn that Open made it posts no ConnLost, because that connects again by itself: where nothing was asked, that
// its peer is gone is noticed and not told. Of a client's connection it posts one where the server wants it
// (control.Server.TellLost).
package zmq
