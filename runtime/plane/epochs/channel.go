package epochs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/kvferry/kvferry/runtime/plane/framing"
)

// A Channel is the connection between two planes on which they agree about epochs. Who writes to it never waits. An
// initiator closes it only when its end of the last communicator is settled, whatever else goes wrong on it: so its end
// proves at the target that the initiator's hardware, or the initiator, is no more.
type Channel struct {
	conn  net.Conn
	stall time.Duration // longest time one write takes
	limit int           // bytes of a frame

	mu       sync.Mutex
	finished bool
	kept     bool // see Keep
	frames   chan []byte
	ended    chan struct{} // the writer has ended
}

const (
	// framesMax bounds what waits to be written. A link says a few words for each epoch.
	framesMax = 64
	// farewell is how long the peer is given to close its side first, so that what it said last does not turn our close
	// into a reset.
	farewell = time.Second
)

// NewChannel makes one of a connection, which it closes by Finish. One write to it takes at most stall, and no frame
// that is read has more than limit bytes.
func NewChannel(conn net.Conn, stall time.Duration, limit int) *Channel {
	return &Channel{
		conn: conn, stall: stall, limit: limit, frames: make(chan []byte, framesMax), ended: make(chan struct{}),
	}
}

// Conn is the connection.
func (c *Channel) Conn() net.Conn { return c.conn }

// Say queues a frame, which it keeps; false says that the peer takes none any more.
func (c *Channel) Say(frame []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished {
		return false
	}
	select {
	case c.frames <- frame:
		return true
	default:
		return false
	}
}

// Write writes what is said until Finish. After an error it drops the rest and calls failed; it does not close the
// connection.
func (c *Channel) Write(failed func(error)) {
	defer close(c.ended)
	broken := false
	for frame := range c.frames {
		if broken {
			continue
		}
		err := c.conn.SetWriteDeadline(time.Now().Add(c.stall))
		if err == nil {
			_, err = c.conn.Write(frame)
		}
		if err != nil {
			broken = true
			failed(err)
		}
	}
}

// Finish writes what was said and closes the connection. closed is closed when the reader has come to the end.
func (c *Channel) Finish(closed <-chan struct{}) {
	c.mu.Lock()
	if !c.finished {
		c.finished = true
		close(c.frames)
	}
	c.mu.Unlock()
	<-c.ended
	if half, ok := c.conn.(*net.TCPConn); ok && !c.kept && half.CloseWrite() == nil {
		late := time.NewTimer(farewell)
		defer late.Stop()
		select {
		case <-closed:
		case <-late.C:
		}
	}
	_ = c.conn.Close()
}

// held are connections that are never closed, so that nobody takes their end for proof.
var held struct {
	mu    sync.Mutex
	files []*os.File
}

// Keep has the connection stay open for as long as the process lives, whatever is closed here.
func (c *Channel) Keep() {
	if conn, ok := c.conn.(*net.TCPConn); ok {
		if file, err := conn.File(); err == nil {
			held.mu.Lock()
			defer held.mu.Unlock()
			held.files = append(held.files, file)
			c.kept = true
		}
	}
}

// Read gives each frame to take until the connection ends or take refuses one.
func (c *Channel) Read(take func(kind uint8, body []byte) error) error {
	r := bufio.NewReader(c.conn)
	var buf []byte
	for {
		k, body, grown, err := framing.Read(r, buf, c.limit)
		if err != nil {
			return err
		}
		buf = grown
		if err := take(k, body); err != nil {
			return err
		}
	}
}

// Drain reads on, without an interest in what comes, for the sake of how it ends.
func (c *Channel) Drain() error {
	_, err := io.Copy(io.Discard, c.conn)
	if err == nil {
		err = io.EOF
	}
	return err
}

// Proves reports whether the end of a channel is the word of the peer's kernel that the peer has closed it, or is dead.
// A reset says so only between processes of one host: from elsewhere it may come from anybody on the way.
func Proves(err error, sameHost bool) bool {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case errors.Is(err, syscall.ECONNRESET):
		return sameHost
	}
	return false
}

// BootID names this run of this host's kernel.
func BootID() (id [16]byte, err error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, fmt.Errorf("the host's boot id: %w", err)
	}
	boot, err := uuid.ParseBytes(bytes.TrimSpace(text))
	if err != nil {
		return id, fmt.Errorf("the host's boot id is %q: %w", text, err)
	}
	return boot, nil
}
