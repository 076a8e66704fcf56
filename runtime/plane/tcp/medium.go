package tcp

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/guarded"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
	"github.com/kvferry/kvferry/runtime/secure"
)

// medium implements link.Medium.
type medium struct {
	streams int
	buffer  int // size of a socket's buffers; 0: the kernel's choice
	calls   socketCalls
	guard   *secure.Guard
}

// pageHeaderBytes is the length of the header before each page on a stream: number of the transfer, pair, length of the
// page.
const pageHeaderBytes = 8 + 4 + 4

func putPageHeader(b []byte, transfer uint64, pair, length uint32) {
	binary.LittleEndian.PutUint64(b, transfer)
	binary.LittleEndian.PutUint32(b[8:], pair)
	binary.LittleEndian.PutUint32(b[12:], length)
}

func parsePageHeader(b []byte) (transfer uint64, pair, length uint32) {
	return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
}

// Dial implements link.Medium. In mode Strict openStream tries again.
func (m *medium) Dial(ctx context.Context, address string) (net.Conn, error) {
	return guarded.Dial(ctx, m.guard, address)
}

// Accept implements link.Medium.
func (m *medium) Accept(conn net.Conn) (net.Conn, error) { return guarded.Accept(m.guard, conn) }

// Permits returns nil: only our own streams read our pages.
func (m *medium) Permits() *plane.Permits { return nil }

func (m *medium) SendHello(conn net.Conn, hello []byte, _ *plane.Pool) error {
	_, err := conn.Write(hello)
	return err
}

func (m *medium) SendWelcome(conn net.Conn, welcome []byte, _ *plane.Pool) error {
	_, err := conn.Write(welcome)
	return err
}

func (m *medium) ReadFirstFrame(conn net.Conn) (kind link.Kind, body []byte, files []*os.File, err error) {
	err = guarded.ReadFirstFrame(conn, func(r io.Reader) error {
		var err error
		kind, body, _, err = link.ReadFrame(r, nil, link.SmallFrame)
		return err
	})
	return kind, body, nil, err
}

// NewSender opens the streams.
func (m *medium) NewSender(ctx context.Context, out *link.OutgoingLink, address string, _ []*os.File) (link.Sender, error) {
	s := newSender(out)
	for range m.streams {
		st, err := m.openStream(ctx, out, address)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("open a stream to %s: %w", address, err)
		}
		s.serveStream(st)
	}
	return s, nil
}

func (m *medium) openStream(ctx context.Context, out *link.OutgoingLink, address string) (*stream, error) {
	return guarded.RetryClosed(ctx, func() (*stream, error) { return m.tryJoin(ctx, out, address) })
}

func (m *medium) tryJoin(ctx context.Context, out *link.OutgoingLink, address string) (*stream, error) {
	conn, err := m.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	// The end of the plane or of the handshake's time also ends this attempt.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	var st *stream
	if err = joinLink(out, conn); err == nil {
		st, err = newStream(conn, m.buffer, m.calls)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return st, nil
}

// joinLink sends the hello of a stream, and waits until the peer has added the stream to its link.
func joinLink(out *link.OutgoingLink, conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(out.Bounds().HandshakeTimeout)); err != nil {
		return err
	}
	if _, err := conn.Write(link.AppendHello(nil, link.KindJoin, out.ProvenHello(link.KindJoin, conn))); err != nil {
		return err
	}
	switch kind, body, _, err := link.ReadFrame(conn, nil, link.SmallFrame); {
	case err != nil:
		return err
	case kind != link.KindJoined || len(body) > 0:
		return fmt.Errorf("%w: frame of kind %d instead of the answer to a join", link.ErrMalformed, kind)
	}
	return conn.SetDeadline(time.Time{})
}

func (m *medium) NewReceiver(in *link.IncomingLink, _ []*os.File) (link.Receiver, error) {
	return &receiver{in: in, reads: newQueue[*link.ServedRead](), conns: map[net.Conn]struct{}{}}, nil
}

// ServeStream serves a stream.
func (m *medium) ServeStream(in *link.IncomingLink, conn net.Conn) error {
	r := in.Receiver().(*receiver)
	if err := r.addConn(conn); err != nil {
		return err
	}
	defer r.removeConn(conn)
	st, err := newStream(conn, m.buffer, m.calls)
	if err != nil {
		in.Fail()
		return err
	}
	return r.serveStream(st)
}

func (m *medium) Close() {}
