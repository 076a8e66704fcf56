package link

import (
	"context"
	"net"
	"os"

	"github.com/kvferry/kvferry/runtime/plane"
)

// A Medium moves the bytes of one plane.
type Medium interface {
	// Dial connects to the address of a peer's blob.
	Dial(ctx context.Context, address string) (net.Conn, error)
	// Permits returns the permits by which the plane shows its peers which transfers run, if peers copy our pages by
	// themselves. It returns nil if only this process reads our pages. The permits are used under the plane's mutex.
	Permits() *plane.Permits
	// SendHello sends a hello, along with the files that the peer needs to copy our pages by itself, if it does so.
	SendHello(conn net.Conn, hello []byte, pool *plane.Pool) error
	// SendWelcome sends a welcome, along with the files that the peer needs to read our pages by itself, if it does
	// so.
	SendWelcome(conn net.Conn, welcome []byte, pool *plane.Pool) error
	// ReadFirstFrame reads the first frame of a connection, a hello or a welcome, and the files that were passed
	// beside it. The caller closes the files, even if an error is returned.
	ReadFirstFrame(conn net.Conn) (kind Kind, body []byte, files []*os.File, err error)
	// NewSender prepares an outgoing link after its welcome. It does not keep files.
	NewSender(ctx context.Context, out *Outgoing, address string, files []*os.File) (Sender, error)
	// NewReceiver prepares an incoming link before its welcome. An error refuses the peer.
	NewReceiver(in *Incoming, files []*os.File) (Receiver, error)
	// ServeStream serves a connection that began with KindJoin, and returns when it has ended.
	ServeStream(in *Incoming, conn net.Conn) error
	// Close ends what the medium runs by itself. It is called after all links have ended.
	Close()
}

// A Sender moves the bytes of an outgoing link's transfers.
type Sender interface {
	// Send is called for each push once its frame has been sent. It never blocks.
	Send(t *Transfer)
	// StartRead is called for each read. It reports whether the peer must be asked to send the pages; otherwise the
	// sender fetches them. It is called with the plane's mutex held, and never blocks.
	StartRead(r *Read) (ask bool)
	// Close ends everything. When it returns, this process accesses none of our pages for the link.
	Close()
}

// A Receiver stores the bytes of an incoming link's pushes.
type Receiver interface {
	// HasPermit reports whether the peer may name this slot in a push.
	HasPermit(slot uint32) bool
	// Receive is called for each push that was admitted. It never blocks.
	Receive(p *Push)
	// Close ends everything. When it returns, no page is being stored for the link.
	Close()
}

// A ReadServer is a Receiver whose peer cannot read our memory by itself, and requests pages.
type ReadServer interface {
	// ServeRead is called for each read of the peer that was admitted. It never blocks.
	ServeRead(s *ServedRead)
	// DropRead is called for each read that ended before all of its pages were sent, so that reads which a peer
	// requests and cancels, again and again, do not pile up. It is called with the plane's mutex held, and never
	// blocks.
	DropRead(s *ServedRead)
}
