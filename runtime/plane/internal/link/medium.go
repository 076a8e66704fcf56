package link

import (
	"context"
	"net"
	"os"

	"github.com/kvferry/kvferry/runtime/plane"
)

// A Medium moves the bytes of a plane.
type Medium interface {
	// Dial connects to the address of a peer's blob, and authenticates the peer.
	Dial(ctx context.Context, address string) (net.Conn, error)
	// Accept authenticates the peer of an accepted connection, and returns the connection to use from now on. The caller
	// closes both.
	Accept(conn net.Conn) (net.Conn, error)
	// Permits returns the permits by which the plane shows its peers which transfers run (M3), if the peers' processes
	// copy our pages. The result is nil if only this process reads our pages. The permits are used under the plane's
	// mutex.
	Permits() *plane.Permits
	// SendHello sends a hello, along with the files that the peer needs if the peer's process copies our pages.
	SendHello(conn net.Conn, hello []byte, pool *plane.Pool) error
	// SendWelcome sends a welcome, along with the files that the peer needs if the peer's process reads our pages.
	SendWelcome(conn net.Conn, welcome []byte, pool *plane.Pool) error
	// ReadFirstFrame reads the first frame of a connection, a hello or a welcome, and the files that were passed
	// beside that frame. The caller closes the files, even if an error is returned.
	ReadFirstFrame(conn net.Conn) (kind Kind, body []byte, files []*os.File, err error)
	// NewSender prepares an outgoing link after the welcome. The sender must not keep the files.
	NewSender(ctx context.Context, out *OutgoingLink, address string, files []*os.File) (Sender, error)
	// NewReceiver prepares an incoming link before the welcome is sent. An error refuses the peer.
	NewReceiver(in *IncomingLink, files []*os.File) (Receiver, error)
	// ServeStream serves a connection that began with KindJoin, and returns when the connection has ended.
	ServeStream(in *IncomingLink, conn net.Conn) error
	// Close ends the medium's own goroutines. It is called after all links have ended.
	Close()
}

// A Sender moves the bytes of an outgoing link's transfers.
type Sender interface {
	// Send is called for each push once the frame of the push has been sent. Send never blocks.
	Send(t *Transfer)
	// StartRead is called for each read, and reports whether the peer must be asked to send the pages; otherwise the
	// sender fetches the pages. It is called with the plane's mutex held, and never blocks.
	StartRead(r *Read) (ask bool)
	// Close ends everything. When Close returns, this process accesses none of our pages for the link.
	Close()
}

// A Receiver stores the bytes of an incoming link's pushes.
type Receiver interface {
	// HasPermit reports whether the peer may name this slot in a push.
	HasPermit(slot uint32) bool
	// Receive is called for each push that was admitted. Receive never blocks.
	Receive(p *Push)
	// Close ends everything. When Close returns, no page is being stored for the link.
	Close()
}

// A ReadServer is a Receiver that sends pages, because the peer's process cannot read our memory.
type ReadServer interface {
	// ServeRead is called for each read of the peer that was admitted. ServeRead never blocks.
	ServeRead(s *ServedRead)
	// DropRead is called for each read that ended before all of its pages were sent, so that reads which a peer
	// requests and cancels, again and again, do not pile up. It is called with the plane's mutex held, and never
	// blocks.
	DropRead(s *ServedRead)
}
