package shm

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/internal/peercred"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// medium implements link.Medium.
type medium struct {
	boot    string
	dir     string // Config.Dir, in which each process makes a folder of its own for its socket; empty: abstract sockets
	folder  string // our own folder in dir, for our socket; empty: an abstract socket
	permits *plane.Permits
	copiers *copiers
	chooser *moverChooser
}

// Dial implements link.Medium. An address is the host's boot id, a space, and the name of the peer's socket.
func (m *medium) Dial(ctx context.Context, address string) (net.Conn, error) {
	boot, name, ok := strings.Cut(address, " ")
	if !ok || boot != m.boot {
		return nil, fmt.Errorf("%w (the peer's boot id is %q, ours is %q)", link.ErrOtherHost, boot, m.boot)
	}
	if err := checkAddress(name, m.dir); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", name)
	if err != nil {
		return nil, err
	}
	if err := peercred.SameUser(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// Accept implements link.Medium. Both ends run as the same user, which ReadFirstFrame checks.
func (m *medium) Accept(conn net.Conn) (net.Conn, error) { return conn, nil }

// Permits implements link.Medium.
func (m *medium) Permits() *plane.Permits { return m.permits }

// filesPerFrame is the number of files that are passed with a hello or a welcome: the pool's pages, their
// generations, and the permits (those of pushes with a hello, the read permits with a welcome).
const filesPerFrame = 3

// SendHello passes our pool's memory and the permits of our pushes beside the first byte of the hello.
func (m *medium) SendHello(conn net.Conn, hello []byte, pool *plane.Pool) error {
	return sendWithFiles(conn, hello, pool, m.permits.PermitsFile())
}

// SendWelcome passes our pool's memory and the read permits beside the first byte of the welcome.
func (m *medium) SendWelcome(conn net.Conn, welcome []byte, pool *plane.Pool) error {
	return sendWithFiles(conn, welcome, pool, pool.ReadPermitsFile())
}

func sendWithFiles(conn net.Conn, frame []byte, pool *plane.Pool, permits *os.File) error {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("%T is not a unix connection", conn)
	}
	// Fd sets the file to blocking mode, which is a memfd's mode anyway.
	rights := unix.UnixRights(int(pool.PagesFile().Fd()), int(pool.GenerationsFile().Fd()), int(permits.Fd()))
	n, _, err := c.WriteMsgUnix(frame, rights, nil)
	if err == nil && n < len(frame) {
		_, err = c.Write(frame[n:])
	}
	return err
}

// ReadFirstFrame reads a hello or a welcome. File descriptors arrive with the first bytes, so these are read as a
// message.
func (m *medium) ReadFirstFrame(conn net.Conn) (kind link.Kind, body []byte, files []*os.File, err error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, nil, nil, fmt.Errorf("%T is not a unix connection", conn)
	}
	if err := peercred.SameUser(c); err != nil {
		return 0, nil, nil, err
	}
	data := make([]byte, link.SmallFrame)
	// The buffer fits this many descriptors and has no padding: the kernel closes every further descriptor that a peer
	// sends.
	control := make([]byte, unix.CmsgLen(4*filesPerFrame))
	n, nc, _, _, err := c.ReadMsgUnix(data, control)
	if err != nil {
		return 0, nil, nil, err
	}
	if files, err = parseFiles(control[:nc]); err != nil {
		return 0, nil, nil, err
	}
	rest := &prefixedReader{head: bytes.NewReader(data[:n]), conn: conn}
	kind, body, _, err = link.ReadFrame(rest, nil, link.SmallFrame)
	if err == nil && rest.head.Len() > 0 {
		err = fmt.Errorf("%w: %d bytes follow the first frame before it was answered", link.ErrMalformed, rest.head.Len())
	}
	return kind, body, files, err
}

// A prefixedReader reads head, then conn.
type prefixedReader struct {
	head *bytes.Reader
	conn net.Conn
}

func (p *prefixedReader) Read(b []byte) (int, error) {
	if p.head.Len() > 0 {
		return p.head.Read(b)
	}
	return p.conn.Read(b)
}

// parseFiles extracts the files from a control message.
func parseFiles(control []byte) (files []*os.File, err error) {
	if len(control) == 0 {
		return nil, nil // A welcome that refuses has no files; a hello without files is refused later.
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("%w: parse the control message: %w", link.ErrMalformed, err)
	}
	var fds []int
	for i := range messages {
		if more, err := unix.ParseUnixRights(&messages[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	if len(fds) != filesPerFrame {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return nil, fmt.Errorf("%w: %d files came with a frame; %d are expected: run the same version of kvferry at both ends",
			link.ErrMalformed, len(fds), filesPerFrame)
	}
	for _, fd := range fds {
		files = append(files, os.NewFile(uintptr(fd), "peer-memory"))
	}
	return files, nil
}

func (m *medium) ServeStream(*link.IncomingLink, net.Conn) error {
	return fmt.Errorf("%w: shm has no streams", link.ErrMalformed)
}

// Close stops the copy threads, unmaps our permits and removes the socket's folder, if it has one.
func (m *medium) Close() {
	m.copiers.close()
	_ = m.permits.Close() // The permits are mapped and are unmapped once, so this cannot fail.
	if m.folder != "" {
		_ = os.Remove(m.folder) // The socket is gone. Remove fails if the folder contains anything else, which is intended.
	}
}
