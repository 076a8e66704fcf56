package secure

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// bulkBytes is the size of the buffer below TLS in each direction of a connection that carries bulk data. TLS would
// otherwise make a system call for each record of 16 KiB.
const bulkBytes = 128 << 10

// maxHandshakeBytes limits what a peer may send before its handshake is complete. A chain of certificates has some
// thousand bytes; TLS itself would keep 256 KiB of each stranger.
const maxHandshakeBytes = 32 << 10

// bulkConn is the connection below TLS. Until StartBulk it only passes everything on, within the limit of a handshake.
type bulkConn struct {
	net.Conn
	handshakeLeft int // bytes that may still be read before the handshake is complete; negative: it is complete
	bulk          atomic.Bool
	in            *bufio.Reader // belongs to the goroutine that reads; nil before the first bulk read
	end           error         // how the connection ended; belongs to the goroutine that reads

	writeError atomic.Pointer[error] // of a write that has taken the socket's error; nil: none

	mu  sync.Mutex // guards out, because TLS also writes answers of its own while reading
	out []byte
}

func newBulkConn(conn net.Conn) *bulkConn {
	return &bulkConn{Conn: conn, handshakeLeft: maxHandshakeBytes}
}

// handshakeDone lifts the limit of a handshake. It is called by the goroutine that completes the handshake, before others
// may read.
func (b *bulkConn) handshakeDone() { b.handshakeLeft = -1 }

func (b *bulkConn) Read(p []byte) (int, error) {
	if b.handshakeLeft >= 0 {
		if b.handshakeLeft == 0 {
			return 0, errors.New("the peer sent too much before its TLS handshake was complete")
		}
		n, err := b.readBeneath(p[:min(len(p), b.handshakeLeft)])
		b.handshakeLeft -= n
		return n, err
	}
	if !b.bulk.Load() {
		return b.readBeneath(p)
	}
	if b.in == nil {
		b.in = bufio.NewReaderSize(b.Conn, bulkBytes)
	}
	return b.in.Read(p)
}

// readBeneath reads, and records how the connection ended. A deadline that has passed is no end.
func (b *bulkConn) readBeneath(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if err != nil && b.end == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		b.end = err
	}
	return n, err
}

// awaitEnd implements Conn.AwaitEnd. An end that was read already is not read again, because a socket reports an error
// once, and the end of the stream ever after. For the same reason the error of a write counts more than the end of the
// stream.
func (b *bulkConn) awaitEnd() error {
	for discarded := make([]byte, 4<<10); b.end == nil; {
		if _, err := b.readBeneath(discarded); err != nil && b.end == nil {
			if err := b.SetReadDeadline(time.Time{}); err != nil {
				return err
			}
		}
	}
	if err := b.writeError.Load(); err != nil && errors.Is(b.end, io.EOF) {
		return *err
	}
	return b.end
}

// TakesSocketError reports whether an error of a write to a socket is the error by which the connection ended. The socket
// reports such an error once, and a read that follows returns io.EOF, as if the peer had closed the connection.
func TakesSocketError(err error) bool {
	var number syscall.Errno
	return errors.As(err, &number) && number != syscall.EPIPE
}

func (b *bulkConn) Write(p []byte) (int, error) {
	if !b.bulk.Load() {
		n, err := b.Conn.Write(p)
		if TakesSocketError(err) {
			b.writeError.Store(&err)
		}
		return n, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.out)+len(p) > bulkBytes {
		if err := b.flushLocked(); err != nil {
			return 0, err
		}
	}
	b.out = append(b.out, p...)
	return len(p), nil
}

func (b *bulkConn) flushLocked() error {
	if len(b.out) == 0 {
		return nil
	}
	_, err := b.Conn.Write(b.out)
	b.out = b.out[:0]
	return err
}

// StartBulk makes the connection collect written bytes until Flush or until there are many, and read many bytes at a
// time.
func (c *Conn) StartBulk() { c.below.bulk.Store(true) }

// Flush sends the bytes that were collected since StartBulk.
func (c *Conn) Flush() error {
	c.below.mu.Lock()
	defer c.below.mu.Unlock()
	return c.below.flushLocked()
}

// Binding returns bytes that only the two ends of this TLS connection know, for proofs that must not be valid on
// another connection. The result is nil for a plain connection.
func Binding(conn net.Conn) []byte {
	c, ok := conn.(*Conn)
	if !ok {
		return nil
	}
	state := c.ConnectionState()
	binding, err := state.ExportKeyingMaterial("EXPORTER-kvferry-binding", nil, 32)
	if err != nil {
		panic("BUG: TLS 1.3 exports keying material: " + err.Error())
	}
	return binding
}
