package link

import (
	"net"
	"sync"
	"time"

	"github.com/kvferry/kvferry/runtime/internal/nowait"
)

// An outbox writes frames to a connection in order, so that no goroutine that holds the plane's mutex waits for a
// peer. A small frame that finds the outbox empty is written at once, as far as the kernel takes the bytes. A
// goroutine writes the rest of that frame and all further frames.
type outbox struct {
	conn         net.Conn
	stallTimeout time.Duration // how long a write may take
	// writeNow writes as much as the kernel takes at once. If the write fails, the goroutine will meet the same error.
	writeNow func(b []byte) (n int)

	mu        sync.Mutex
	ready     sync.Cond
	frames    []queuedFrame
	maxFrames int
	writing   bool // the goroutine is writing a frame that is no longer in items
	closed    bool
}

// maxImmediateBytes is the length of the longest frame that is written at once: the caller may hold the plane's mutex
// meanwhile.
const maxImmediateBytes = 4 << 10

// A queuedFrame is a frame to be written. If shouldWrite is set, it is called right before the write and decides
// whether the frame is written at all. If onWritten is set, it is called when the frame has been written.
type queuedFrame struct {
	frame       []byte
	shouldWrite func() bool
	onWritten   func()
}

func newOutbox(conn net.Conn, limit int, stall time.Duration) *outbox {
	raw := nowait.RawConn(conn)
	o := &outbox{conn: conn, stallTimeout: stall, maxFrames: limit, writeNow: func(b []byte) int { return nowait.WriteNow(raw, b) }}
	o.ready.L = &o.mu
	return o
}

// sendState says how far the sending of a frame has come when the call that queues the frame returns.
type sendState uint8

const (
	frameQueued     sendState = iota
	framePartlySent           // some bytes have been written; the rest follows without a call of shouldWrite
	frameSent                 // all bytes have been written; the caller must call onWritten
)

// putFrame writes or queues a frame. The result is false if the outbox is closed or full. A frame that can be written
// at once is written without a call of shouldWrite, so the caller must have checked the same condition.
func (o *outbox) putFrame(item queuedFrame) (how sendState, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.frames) >= o.maxFrames {
		return frameQueued, false
	}
	if len(item.frame) <= maxImmediateBytes && len(o.frames) == 0 && !o.writing {
		if n := o.writeNow(item.frame); n == len(item.frame) {
			return frameSent, true
		} else if n > 0 {
			how, item.frame, item.shouldWrite = framePartlySent, item.frame[n:], nil
		}
	}
	o.frames = append(o.frames, item)
	o.ready.Signal()
	return how, true
}

// writeFrames writes frames until the outbox is closed or a write fails. Then it closes the connection, which the
// connection's reader notices.
func (o *outbox) writeFrames() {
	defer o.conn.Close()
	for {
		o.mu.Lock()
		for len(o.frames) == 0 && !o.closed {
			o.ready.Wait()
		}
		if o.closed {
			o.mu.Unlock()
			return
		}
		item := o.frames[0]
		o.frames = append(o.frames[:0], o.frames[1:]...)
		o.writing = true
		o.mu.Unlock()

		if item.shouldWrite != nil && !item.shouldWrite() {
			o.clearWriting()
			continue
		}
		if err := o.conn.SetWriteDeadline(time.Now().Add(o.stallTimeout)); err != nil {
			return
		}
		if _, err := o.conn.Write(item.frame); err != nil {
			return
		}
		// Immediate writes never wait, and must not fail because of an old deadline.
		if err := o.conn.SetWriteDeadline(time.Time{}); err != nil {
			return
		}
		o.clearWriting()
		if item.onWritten != nil {
			item.onWritten()
		}
	}
}

func (o *outbox) clearWriting() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = false
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.frames = true, nil
	o.ready.Broadcast()
}
