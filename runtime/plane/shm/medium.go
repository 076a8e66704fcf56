package shm

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// medium implements link.Medium.
type medium struct {
	boot        string
	dir         string // where sockets with a path are, if configured
	folder      string // of our own socket, if it has one
	copiers     *copiers
	nonTemporal uint64 // see receiver
}

func (m *medium) Dial(ctx context.Context, address string) (net.Conn, error) {
	boot, name, ok := strings.Cut(address, " ")
	if !ok || boot != m.boot {
		return nil, fmt.Errorf("the peer is on another host (boot %q; this is %q); use another plane", boot, m.boot)
	}
	if err := dialable(name, m.dir); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	if err := sameUser(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// Greet sends the hello with our pool's memory beside its first byte.
func (m *medium) Greet(conn net.Conn, hello []byte, memory *os.File) error {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("%T is not a unix connection", conn)
	}
	// Fd leaves the file in blocking mode, which is what a memfd is in anyway.
	n, _, err := c.WriteMsgUnix(hello, unix.UnixRights(int(memory.Fd())), nil)
	if err == nil && n < len(hello) {
		_, err = c.Write(hello[n:])
	}
	return err
}

// Greeted reads the hello. Descriptors come with the first bytes, so these are read with a message.
func (m *medium) Greeted(conn net.Conn) (kind link.Kind, body []byte, file *os.File, err error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, nil, nil, fmt.Errorf("%T is not a unix connection", conn)
	}
	if err := sameUser(c); err != nil {
		return 0, nil, nil, err
	}
	data := make([]byte, link.SmallFrame)
	// Room for one descriptor: the kernel closes what a peer sends beyond it.
	control := make([]byte, unix.CmsgSpace(4))
	n, nc, _, _, err := c.ReadMsgUnix(data, control)
	if err != nil {
		return 0, nil, nil, err
	}
	if file, err = descriptor(control[:nc]); err != nil {
		return 0, nil, nil, err
	}
	rest := &prefixed{head: bytes.NewReader(data[:n]), conn: conn}
	kind, body, _, err = link.ReadFrame(rest, nil, link.SmallFrame)
	if err == nil && rest.head.Len() > 0 {
		err = fmt.Errorf("%w: %d bytes follow a hello that was not answered", link.ErrMalformed, rest.head.Len())
	}
	return kind, body, file, err
}

// prefixed reads head, then conn.
type prefixed struct {
	head *bytes.Reader
	conn net.Conn
}

func (p *prefixed) Read(b []byte) (int, error) {
	if p.head.Len() > 0 {
		return p.head.Read(b)
	}
	return p.conn.Read(b)
}

// descriptor takes the one file out of a control message.
func descriptor(control []byte) (*os.File, error) {
	if len(control) == 0 {
		return nil, fmt.Errorf("%w: no memory came with the hello", link.ErrMalformed)
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("%w: control message: %w", link.ErrMalformed, err)
	}
	var fds []int
	for i := range messages {
		if more, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	if len(fds) != 1 {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return nil, fmt.Errorf("%w: %d files came with the hello; one is expected", link.ErrMalformed, len(fds))
	}
	return os.NewFile(uintptr(fds[0]), "peer-pool"), nil
}

// Depart: there is nothing to do for a transfer beside its push frame, and of our process nobody reads.
func (m *medium) Depart(context.Context, *link.Outgoing, string) (link.Sender, error) {
	return asker{}, nil
}

type asker struct{}

func (asker) Send(*link.Transfer) {}
func (asker) Close()              {}

func (m *medium) Arrive(in *link.Incoming, file *os.File) (link.Receiver, error) {
	if file == nil {
		return nil, fmt.Errorf("%w: no memory came with the hello", link.ErrMalformed)
	}
	b := in.Hello().Buffer
	mapping, err := plane.Map(file.Fd(), b.Pages, b.PageBytes)
	if err != nil {
		return nil, err
	}
	return &receiver{in: in, mapping: mapping, copiers: m.copiers, nonTemporal: m.nonTemporal}, nil
}

func (m *medium) Join(*link.Incoming, net.Conn) error {
	return fmt.Errorf("%w: shm has no streams", link.ErrMalformed)
}

// Close stops the copy threads and removes the socket's folder, if it has one.
func (m *medium) Close() {
	m.copiers.close()
	if m.folder != "" {
		_ = os.RemoveAll(m.folder) // What is left is an empty folder of ours.
	}
}
