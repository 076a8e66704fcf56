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
	// Greet sends a hello; memory, the file of our pool, may travel beside it.
	Greet(conn net.Conn, hello []byte, memory *os.File) error
	// Greeted reads the first frame of an accepted connection; files are what travelled beside it. The
	// caller closes them, also where an error is returned.
	Greeted(conn net.Conn) (kind Kind, body []byte, files []*os.File, err error)
	// Depart readies an outgoing link after its welcome.
	Depart(ctx context.Context, out *Outgoing, address string) (Sender, error)
	// Arrive readies an incoming link before its welcome. An error refuses the peer.
	Arrive(in *Incoming, files []*os.File) (Receiver, error)
	// Join takes a connection that began with KindJoin, serves it and returns when it has ended.
	Join(in *Incoming, conn net.Conn) error
	// Close ends what the medium runs by itself, after all links have ended.
	Close()
}

// A Sender moves the bytes of an outgoing link's transfers.
type Sender interface {
	// Send is told of each transfer once its push frame has left. It never blocks.
	Send(t *Transfer)
	// Close ends everything and returns when no page of ours is being read by this process.
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
