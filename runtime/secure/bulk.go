package secure

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
)

// bulkBytes is the size of the buffer below TLS in each direction of a connection that carries bulk data. TLS would
// otherwise make a system call for each record of 16 KiB.
const bulkBytes = 128 << 10

// bulkConn is the connection below TLS. Until StartBulk it only passes everything on.
type bulkConn struct {
	net.Conn
	bulk atomic.Bool
	in   *bufio.Reader // belongs to the goroutine that reads; nil before the first bulk read

	mu  sync.Mutex // guards out, because TLS also writes answers of its own while reading
	out []byte
}

func (b *bulkConn) Read(p []byte) (int, error) {
	if !b.bulk.Load() {
		return b.Conn.Read(p)
	}
	if b.in == nil {
		b.in = bufio.NewReaderSize(b.Conn, bulkBytes)
	}
	return b.in.Read(p)
}

func (b *bulkConn) Write(p []byte) (int, error) {
	if !b.bulk.Load() {
		return b.Conn.Write(p)
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
