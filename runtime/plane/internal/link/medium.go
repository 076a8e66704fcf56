package link

import (
	"context"
	"net"
	"os"

	"github.com/kvferry/kvferry/runtime/plane"
)

// A Medium is how the bytes of one plane move.
type Medium interface {
	// Dial connects to the address of a peer's blob.
	Dial(ctx context.Context, address string) (net.Conn, error)
	// Permits are where the plane shows its peers which transfers run, if they copy our pages by themselves; nil
	// if only this process reads them. They are used under the plane's mutex.
	Permits() *plane.Permits
	// Greet sends a hello, and what the peer needs in order to copy our pages by itself, if it does.
	Greet(conn net.Conn, hello []byte, pool *plane.Pool) error
	// Welcome sends a welcome, and what the peer needs in order to read our pages by itself, if it does.
	Welcome(conn net.Conn, welcome []byte, pool *plane.Pool) error
	// Greeted reads the first frame of a connection, a hello or a welcome; files are what travelled beside it. The
	// caller closes them, also where an error is returned.
	Greeted(conn net.Conn) (kind Kind, body []byte, files []*os.File, err error)
	// Depart readies an outgoing link after its welcome. It does not keep files.
	Depart(ctx context.Context, out *Outgoing, address string, files []*os.File) (Sender, error)
	// Arrive readies an incoming link before its welcome. An error refuses the peer.
	Arrive(in *Incoming, files []*os.File) (Receiver, error)
	// Join takes a connection that began with KindJoin, serves it and returns when it has ended.
	Join(in *Incoming, conn net.Conn) error
	// Close ends what the medium runs by itself, after all links have ended.
	Close()
}

// A Sender moves the bytes of an outgoing link's transfers.
type Sender interface {
	// Send is told of each push once its frame has left. It never blocks.
	Send(t *Transfer)
	// Load is told of each read. It reports whether the peer must be asked for the pages: if so they come by themselves,
	// else the sender fetches them. It is called with the plane's mutex held, and never blocks.
	Load(r *Read) (ask bool)
	// Close ends everything and returns when this process accesses no page of ours for the link.
	Close()
}

// A Receiver stores the bytes of an incoming link's pushes.
type Receiver interface {
	// Permits reports whether the peer may name this slot in a push.
	Permits(slot uint32) bool
	// Receive is told of each push that was let in. It never blocks.
	Receive(p *Push)
	// Close ends everything and returns when no page is being stored for this link.
	Close()
}

// A Supplier is a Receiver whose peer cannot read by itself, and asks.
type Supplier interface {
	// Supply is told of each read of the peer that was let in. It never blocks.
	Supply(s *Supply)
	// Forget is told of one that ended before all of its pages were sent, so that what a peer asks for and cancels,
	// again and again, does not pile up. It is called with the plane's mutex held, and never blocks.
	Forget(s *Supply)
}
