package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/framing"
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

func (m *medium) Dial(ctx context.Context, address string) (net.Conn, error) {
	switch m.guard.Mode() {
	case secure.Off:
		return framing.Dial(ctx, address)
	case secure.Strict:
		return m.dialTLS(ctx, address) // openStream tries again.
	case secure.Permissive:
	}
	secured, err := retryClosed(ctx, func() (net.Conn, error) { return m.dialTLS(ctx, address) })
	if !errors.Is(err, secure.ErrNoTLS) && !closedByPeer(err) {
		return secured, err
	}
	// Our handshake has spoilt the first connection. A server of an earlier release only closes it.
	conn, err := framing.Dial(ctx, address)
	if err == nil {
		m.guard.CountPlain(conn.RemoteAddr())
	}
	return conn, err
}

func (m *medium) dialTLS(ctx context.Context, address string) (net.Conn, error) {
	conn, err := framing.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	secured, _, err := m.guard.Connect(ctx, conn, secure.FaceData, engineRoles)
	return secured, err
}

// engineRoles are the roles of the nodes that have pages.
var engineRoles = effects.ChannelInit.ClientRoles()

// Accept implements link.Medium.
func (m *medium) Accept(conn net.Conn) (net.Conn, error) {
	secured, peer, err := m.guard.Accept(conn, secure.FaceData, engineRoles)
	if err == nil && !peer.Roles.Has(engineRoles) {
		_ = secured.Close() // The guard keeps a connection until then.
		return nil, fmt.Errorf("%q has the roles %v, and pages are only for %v: change security.policy if it is an engine's node",
			peer.Name, peer.Roles, engineRoles)
	}
	return secured, err
}

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
	var first bytes.Buffer
	kind, body, _, err = link.ReadFrame(io.TeeReader(conn, &first), nil, link.SmallFrame)
	if errors.Is(err, link.ErrMalformed) && secure.IsTLS(first.Bytes()) {
		secure.RefuseTLS(conn)
		err = errors.New("the peer speaks TLS, and security.mode is off: set it to permissive here, or to permissive at the peer")
	}
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

// A connection that the peer closes early is opened again. While many strangers connect, the target's door may have
// closed it to make room, because the door learns only from the proof in a hello or a join that the peer is known.
const (
	maxTries    = 8
	minTryPause = time.Millisecond
)

// retryClosed calls try until it succeeds, or fails for another reason than that the peer closed the connection, at
// most maxTries times.
func retryClosed[T any](ctx context.Context, try func() (T, error)) (result T, err error) {
	pause := minTryPause
	for range maxTries {
		if result, err = try(); err == nil || !closedByPeer(err) {
			return result, err
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return result, err
		}
	}
	return result, err
}

func (m *medium) openStream(ctx context.Context, out *link.OutgoingLink, address string) (*stream, error) {
	return retryClosed(ctx, func() (*stream, error) { return m.tryJoin(ctx, out, address) })
}

// closedByPeer reports whether the peer closed the connection, as opposed to sending nothing or nonsense.
func closedByPeer(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
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
