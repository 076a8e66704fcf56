package tcp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kvferry/kvferry/runtime/plane/internal/link"
	"github.com/kvferry/kvferry/runtime/secure"
)

// A stream is a connection on which pages travel in both directions.
type stream struct {
	conn net.Conn
	raw  syscall.RawConn // nil with TLS
	tls  *secure.Conn    // nil without TLS
	socketCalls
	// With TLS, pages pass through these buffers, so that a page is held only while it is copied.
	readCopy, writeCopy []byte
	// The header of the page that is read next, of which some bytes may have arrived with the previous page.
	header     [pageHeaderBytes]byte
	headerRead int
	discarded  []byte // receives discarded bytes

	// The headers, buffers and parts of the pages that are being written.
	headers []byte
	buffers net.Buffers
	parts   [][]byte
	// The targets of the next read: a part of a page, and the header of the next page.
	targets [2][]byte
}

// socketCalls are the system calls that move bytes between sockets and pages. Neither of them blocks.
type socketCalls struct {
	readv   func(fd int, parts [][]byte) (n int, err error)
	sendmsg func(fd int, parts [][]byte) (n int, err error)
}

func sendParts(fd int, parts [][]byte) (n int, err error) {
	return unix.SendmsgBuffers(fd, parts, nil, nil, unix.MSG_NOSIGNAL)
}

func newStream(conn net.Conn, buffer int, by socketCalls) (*stream, error) {
	buffered, ok := conn.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	})
	if !ok {
		return nil, fmt.Errorf("%T is not a tcp connection", conn)
	}
	if buffer > 0 {
		if err := errors.Join(buffered.SetReadBuffer(buffer), buffered.SetWriteBuffer(buffer)); err != nil {
			return nil, err
		}
	}
	st := &stream{conn: conn, socketCalls: by}
	switch c := conn.(type) {
	case *secure.Conn:
		c.StartBulk()
		st.tls = c
	case *net.TCPConn:
		raw, err := c.SyscallConn()
		if err != nil {
			return nil, err
		}
		st.raw = raw
	default:
		return nil, fmt.Errorf("%T is not a tcp connection", conn)
	}
	return st, nil
}

// copyBytes is the number of bytes that are read at a time with TLS, before they are copied into a page.
const copyBytes = 64 << 10

// flush sends what TLS has collected.
func (s *stream) flush() error {
	if s.tls == nil {
		return nil
	}
	return s.tls.Flush()
}

// writeBuffers writes all buffers: with a single system call for all headers and pages, unless pages have very many
// pieces or the stream uses TLS.
func (s *stream) writeBuffers(b net.Buffers) error {
	if _, err := b.WriteTo(s.conn); err != nil {
		return err
	}
	return s.flush()
}

// setHeader fills in and returns the header of the at-th page of a run.
func (s *stream) setHeader(at int, number uint64, pair, length uint32) []byte {
	if s.headers == nil {
		s.headers = make([]byte, maxRunPages*pageHeaderBytes)
	}
	head := s.headers[at*pageHeaderBytes:][:pageHeaderBytes:pageHeaderBytes]
	putPageHeader(head, number, pair, length)
	return head
}

// nextHeader reads the header of the next page. The length of the page must be at most limit.
func (s *stream) nextHeader(limit uint64) (number uint64, pair uint32, length int, err error) {
	if _, err := io.ReadFull(s.conn, s.header[s.headerRead:]); err != nil {
		return 0, 0, 0, err
	}
	s.headerRead = 0
	number, pair, n := parsePageHeader(s.header[:])
	if uint64(n) > limit {
		return 0, 0, 0, fmt.Errorf("%w: page of %d bytes; pages of this pool have at most %d", link.ErrMalformed, n, limit)
	}
	return number, pair, int(n), nil
}

// storePage reads length bytes into a page, together with the bytes of the next page's header that have arrived. If
// hold returns nil, which means that the page must not be stored into any more, the call returns early, with the number
// of bytes of the page that are left to be read, and without an error. That number may be 0.
//
// The runtime's poller calls the function whenever bytes may have arrived. The page is held only for a single read
// that does not block, so that the page can be revoked without the peer's help (M3).
func (s *stream) storePage(length int, hold func() []byte, unhold func()) (stored bool, left int, err error) {
	if s.tls != nil {
		return s.storeCopied(length, hold, unhold)
	}
	var withdrawn bool
	var readErr error
	n := 0
	err = s.raw.Read(func(fd uintptr) bool {
		for n < length {
			dst := hold()
			if dst == nil {
				withdrawn = true
				return true
			}
			s.targets = [2][]byte{dst[n:min(length, n+maxHoldBytes)], s.header[:]}
			parts := 1
			if n+maxHoldBytes >= length {
				parts = 2
			}
			got, e := s.readv(int(fd), s.targets[:parts])
			unhold()
			switch {
			case got > 0:
				s.headerRead = max(n+got-length, 0)
				n = min(n+got, length)
			case e == syscall.EINTR:
			case e == syscall.EAGAIN:
				return false
			case e != nil:
				readErr = e
				return true
			default:
				readErr = io.ErrUnexpectedEOF
				return true
			}
		}
		return true
	})
	if err == nil && !withdrawn {
		err = readErr
	}
	return !withdrawn, length - n, err
}

// storeCopied is storePage with TLS. Bytes are decrypted into a buffer of the stream, and copied into the page within a
// hold.
func (s *stream) storeCopied(length int, hold func() []byte, unhold func()) (stored bool, left int, err error) {
	if s.readCopy == nil {
		s.readCopy = make([]byte, copyBytes)
	}
	for n := 0; n < length; {
		got, err := s.tls.Read(s.readCopy[:min(length-n, len(s.readCopy))])
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return false, length - n, err
		}
		dst := hold()
		if dst == nil {
			return false, length - n - got, nil
		}
		copy(dst[n:], s.readCopy[:got])
		unhold()
		n += got
	}
	return true, 0, nil
}

func (s *stream) discardBytes(length int) error {
	if s.discarded == nil {
		s.discarded = make([]byte, 64<<10)
	}
	for length > 0 {
		n, err := s.conn.Read(s.discarded[:min(length, len(s.discarded))])
		if err != nil {
			return err
		}
		length -= n
	}
	return nil
}
