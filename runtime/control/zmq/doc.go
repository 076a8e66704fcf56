// Package zmq carries control messages over ZeroMQ's wire protocol, with the frames of plain REQ/REP and PUSH/PULL
// sockets, so that either end may be an unmodified LMCache process. The package implements control.Transport; the
// subpackage zmtp has the wire format.
//
// # Which socket types
//
//	channels with requests      server: as a ROUTER      client: as one DEALER for each Conn
//	one-way channels            server: as a PULL        client: as one PUSH for each Conn
//
// Both ends are this package's own, over Go's connections, because libzmq accepts whatever a peer sends: libzmq holds
// a message of many frames until the last frame has arrived, however many there are, in requests as well as in
// replies; and accept spins when the process has no file left. Here a message has a bounded size and a bounded number
// of frames in both directions. The tests run this package against libzmq.
//
// # Servers
//
// An inbound connection is admitted by package door and read by a separate goroutine. At most 16 requests of a
// connection are in the machine's hands; further requests wait on the wire. Many REQ clients are served at once. Each
// client gets the reply when the machine provides the reply, on the connection of the request. A message that is not a
// well-formed request reaches the machine with an empty body, which is not a message of any channel: so the machine
// replies with an error, and the client does not wait until the timeout.
//
// # Clients
//
// A DEALER sends the empty frame that a REQ would send. Unlike a REQ, a DEALER can be closed while a reply is still
// due: that closes the connection, so that a late reply has nowhere to arrive. Therefore a Conn never sees the reply
// to an earlier request in place of the expected reply. A peer that sends a reply without a request, a reply that is
// too large or a reply without an end loses the connection, with a line in the log, and the requests that were in
// flight on this connection end as Malformed.
//
// A Conn that was opened with a Window puts an id of 8 bytes before the empty frame. A REP, and any server that acts
// as a ROUTER, returns this id with the reply, so replies may arrive in any order. A reply with an id that belongs to
// no request in flight is dropped and counted, with a line in the log, and is never taken for the reply to another
// request. Without a Window the bytes are exactly the bytes of a REQ.
//
// Open resolves the peer's name (package names) and connects to the first address that accepts, so an unreachable peer
// is reported at once as Unreachable, with one line in the log. The Conn stays with that address. A goroutine, the
// Conn's keeper, reads the connection. When the connection ends, the requests that were in flight end as PeerLost;
// nothing is ever sent twice. While messages wait for a connection, the keeper connects again, with growing pauses.
// When nothing waits the keeper ends, and the next message starts a new keeper. Example: a peer restarts while three
// requests wait. The requests are sent once the peer serves again, as long as the sender has not given up.
//
// After the handshake a message is written by the goroutine that calls Send or Post, with a write that does not block.
// What the system does not take at once is written by the connection's outbox. A Post completes with OK when the
// system has all bytes, and with Refused if no connection has taken the message within ConnectTimeout. Closing a Conn
// drops messages that wait for a connection; posted messages that the system already has get Linger to arrive.
//
// # Addresses
//
// After a change of a name's address, the name leads to the new address with the next Open. Names resolve to IPv4, as
// in LMCache, unless Config.IPv6 is set; IPv6 literals always work. A server binds an address, an interface by name,
// or the first address of a host name, which is resolved once, in Listen.
//
// # Lost connections
//
// This package posts no ConnLost for a Conn that Open made, because the Conn connects again by itself; on a one-way
// channel a lost connection is noticed but not reported. A ConnLost for a client's connection is posted if the server
// asks for that (control.Server.ReportLost).
package zmq
