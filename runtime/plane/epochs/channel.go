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
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/kvferry/kvferry/runtime/plane/framing"
	"github.com/kvferry/kvferry/runtime/secure"
)

// A Channel is the connection on which two planes agree about epochs, with or without TLS. Sending never blocks. An
// initiator closes the channel only when the initiator's end of the last communicator is settled, even if the link fails
// for another reason. So the end of the connection proves to the target that the initiator's hardware, or the initiator
// itself, cannot reach the target's memory any more (M4).
//
// With TLS, the end that counts is the end of the TCP connection beneath. An alert of TLS proves nothing, and neither does
// a record that cannot be decrypted, because anybody on the way can send one. When the guard does not accept the peer any
// more, it calls Interrupt instead of closing the connection: this end believes no further message, and the connection
// stays open until each end has settled its part.
type Channel struct {
	conn          net.Conn
	stallTimeout  time.Duration // how long a write may take
	maxFrameBytes int           // bytes of a frame
	reader        endRecorder
	interrupted   atomic.Pointer[error] // set by Interrupt; nil: the peer's frames are believed

	writing    sync.Mutex // held during a write
	writeError error      // of a write that has taken the socket's error; guarded by writing

	mu         sync.Mutex
	finished   bool
	keepOpen   bool // set by KeepOpen
	frames     chan []byte
	writerDone chan struct{} // closed when the writer has ended
}

const (
	// maxFrames bounds the frames that wait to be written. A link sends a few frames for each epoch.
	maxFrames = 64
	// peerCloseTimeout is the time that the peer has to close its side first, so that unread bytes of the peer do not
	// turn our close into a reset.
	peerCloseTimeout = time.Second
)

// NewChannel makes a channel of a connection, which FlushAndClose closes. A write may take at most stall, and no frame
// that is read may have more than limit bytes.
func NewChannel(conn net.Conn, stall time.Duration, limit int) *Channel {
	return &Channel{
		conn: conn, stallTimeout: stall, maxFrameBytes: limit, frames: make(chan []byte, maxFrames), writerDone: make(chan struct{}),
		reader: endRecorder{conn: conn},
	}
}

// An endRecorder records the error by which a connection ended. A deadline that has passed is no end.
type endRecorder struct {
	conn net.Conn
	end  error
}

func (r *endRecorder) Read(p []byte) (int, error) {
	n, err := r.conn.Read(p)
	if r.end == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		r.end = err
	}
	return n, err
}

// awaitEnd reads and discards everything until the connection ends, and returns how it ended.
func (r *endRecorder) awaitEnd() error {
	for r.end == nil {
		if err := r.conn.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, r)
	}
	return r.end
}

// Conn returns the connection.
func (c *Channel) Conn() net.Conn { return c.conn }

// Send queues a frame, which the channel keeps. The result is false if the peer does not read any more, or the channel
// is finished.
func (c *Channel) Send(frame []byte) bool {
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

// WriteFrames writes queued frames until FlushAndClose. After an error the remaining frames are dropped and failed is
// called; the connection stays open.
func (c *Channel) WriteFrames(failed func(error)) {
	defer close(c.writerDone)
	broken := false
	for frame := range c.frames {
		if broken {
			continue
		}
		if err := c.writeFrame(frame); err != nil {
			broken = true
			failed(err)
		}
	}
}

func (c *Channel) writeFrame(frame []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	err := c.conn.SetWriteDeadline(time.Now().Add(c.stallTimeout))
	if err == nil {
		_, err = c.conn.Write(frame)
	}
	if secure.TakesSocketError(err) {
		c.writeError = err
	}
	return err
}

// FlushAndCloseWrite writes all queued frames and ends the direction to the peer, so that the peer learns that the link
// is over, and this end still learns how the peer ends the connection.
func (c *Channel) FlushAndCloseWrite() error {
	c.mu.Lock()
	if !c.finished {
		c.finished = true
		close(c.frames)
	}
	c.mu.Unlock()
	<-c.writerDone
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok || c.keepOpen {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// FlushAndClose writes all queued frames and closes the connection. The channel closed must be closed when the reader
// has ended.
func (c *Channel) FlushAndClose(closed <-chan struct{}) {
	if c.FlushAndCloseWrite() == nil {
		late := time.NewTimer(peerCloseTimeout)
		defer late.Stop()
		select {
		case <-closed:
		case <-late.C:
		}
	}
	_ = c.conn.Close()
}

// neverClosed are connections that this process never closes, so that no peer takes the end of such a connection for
// proof (M4).
var neverClosed struct {
	mu    sync.Mutex
	files []*os.File
}

// KeepOpen makes the connection stay open until this process ends, even after FlushAndClose.
func (c *Channel) KeepOpen() {
	if conn, ok := secure.Beneath(c.conn).(*net.TCPConn); ok {
		if file, err := conn.File(); err == nil {
			neverClosed.mu.Lock()
			defer neverClosed.mu.Unlock()
			neverClosed.files = append(neverClosed.files, file)
			c.keepOpen = true
		}
	}
}

// ReadFrames passes each frame to handle until the connection ends, handle returns an error, or the channel is
// interrupted. AwaitEnd must follow where the end of the connection matters.
func (c *Channel) ReadFrames(handle func(kind uint8, body []byte) error) error {
	r := bufio.NewReader(&c.reader)
	var buf []byte
	for {
		k, body, grown, err := framing.ReadFrame(r, buf, c.maxFrameBytes)
		if reason := c.interrupted.Load(); reason != nil {
			return *reason
		}
		if err != nil {
			return err
		}
		buf = grown
		if err := handle(k, body); err != nil {
			return err
		}
	}
}

// Interrupt makes ReadFrames return reason, and pass no further frame to its caller. The connection stays open.
func (c *Channel) Interrupt(reason error) {
	c.interrupted.CompareAndSwap(nil, &reason)
	_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // Wakes the reader; AwaitEnd removes the deadline.
}

// AwaitEnd reads and discards whatever the peer still sends, and returns how the TCP connection ended. It belongs to the
// goroutine that has called ReadFrames, and follows it. Why ReadFrames returned says nothing about the end: after a
// malformed frame, an error of TLS or Interrupt the connection is still open.
func (c *Channel) AwaitEnd() error {
	var end error
	if conn, ok := c.conn.(*secure.Conn); ok {
		end = conn.AwaitEnd()
	} else {
		end = c.reader.awaitEnd()
	}
	// A write that is in progress may be about to take the error of the socket.
	c.writing.Lock()
	defer c.writing.Unlock()
	if errors.Is(end, io.EOF) && c.writeError != nil {
		return c.writeError
	}
	return end
}

// ProvesEnd reports whether the end of a channel proves that the peer has closed the channel or is dead, because only
// the peer's kernel can have ended the connection in this way (M4). A reset is proof only between processes of the
// same host: a reset from another host may come from any machine on the way.
func ProvesEnd(err error, sameHost bool) bool {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case errors.Is(err, syscall.ECONNRESET):
		return sameHost
	}
	return false
}

// BootID returns the id of this boot of this host.
func BootID() (id [16]byte, err error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, fmt.Errorf("read the boot id of this host: %w", err)
	}
	boot, err := uuid.ParseBytes(bytes.TrimSpace(text))
	if err != nil {
		return id, fmt.Errorf("parse the boot id %q of this host: %w", text, err)
	}
	return boot, nil
}
