package tcp

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// medium implements link.Medium.
type medium struct{ streams int }

// headBytes precede each page on a stream: number of the transfer, pair, length of the page.
const headBytes = 8 + 4 + 4

func putHead(b []byte, transfer uint64, pair, length uint32) {
	binary.LittleEndian.PutUint64(b, transfer)
	binary.LittleEndian.PutUint32(b[8:], pair)
	binary.LittleEndian.PutUint32(b[12:], length)
}

func parseHead(b []byte) (transfer uint64, pair, length uint32) {
	return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])
}

func (m *medium) Dial(ctx context.Context, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// Permits: only our own streams read our pages.
func (m *medium) Permits() *plane.Permits { return nil }

func (m *medium) Greet(conn net.Conn, hello []byte, _ *os.File) error {
	_, err := conn.Write(hello)
	return err
}

func (m *medium) Greeted(conn net.Conn) (kind link.Kind, body []byte, files []*os.File, err error) {
	kind, body, _, err = link.ReadFrame(conn, nil, link.SmallFrame)
	return kind, body, nil, err
}

// Depart opens the streams.
func (m *medium) Depart(ctx context.Context, out *link.Outgoing, address string) (link.Sender, error) {
	s := newSender(out)
	for range m.streams {
		conn, err := m.Dial(ctx, address)
		if err == nil {
			err = begin(conn, out)
		}
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("stream to %s: %w", address, err)
		}
		s.serve(conn.(*net.TCPConn))
	}
	return s, nil
}

func begin(conn net.Conn, out *link.Outgoing) error {
	err := conn.(*net.TCPConn).SetWriteBuffer(bufferBytes)
	if err == nil {
		err = conn.SetWriteDeadline(time.Now().Add(out.Bounds().Handshake))
	}
	if err == nil {
		_, err = conn.Write(link.AppendHello(nil, link.KindJoin, out.Hello()))
	}
	if err != nil {
		_ = conn.Close()
	}
	return err
}

func (m *medium) Arrive(in *link.Incoming, _ []*os.File) (link.Receiver, error) {
	return &receiver{in: in, conns: map[net.Conn]struct{}{}}, nil
}

// Join serves one stream. When a stream ends its link ends: pages may be missing.
func (m *medium) Join(in *link.Incoming, conn net.Conn) error {
	r := in.Receiver().(*receiver)
	if err := r.add(conn); err != nil {
		return err
	}
	defer r.remove(conn)
	defer in.Fail()
	tcp := conn.(*net.TCPConn)
	if err := tcp.SetReadBuffer(bufferBytes); err != nil {
		return err
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	return (&stream{in: in, conn: conn, raw: raw}).read()
}

func (m *medium) Close() {}
