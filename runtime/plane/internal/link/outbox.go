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
	conn  net.Conn
	stall time.Duration // how long a write may take
	// writeNow writes as much as the kernel takes at once. If the write fails, the goroutine will meet the same error.
	writeNow func(b []byte) (n int)

	mu      sync.Mutex
	ready   sync.Cond
	items   []queuedFrame
	max     int
	writing bool // the goroutine is writing a frame that is no longer in items
	closed  bool
}

// maxImmediateBytes is the length of the longest frame that is written at once: the caller may hold the plane's mutex
// meanwhile.
const maxImmediateBytes = 4 << 10

// A queuedFrame is a frame to be written. If shouldWrite is set, it is called right before the write and decides
// whether the frame is written at all. If onWritten is set, it is called when the frame has been written.
type queuedFrame struct {
	frame  []byte
	before func() bool
	after  func()
}

func newOutbox(conn net.Conn, limit int, stall time.Duration) *outbox {
	raw := nowait.Raw(conn)
	o := &outbox{conn: conn, stall: stall, max: limit, writeNow: func(b []byte) int { return nowait.Write(raw, b) }}
	o.ready.L = &o.mu
	return o
}

// sendState says how far the sending of a frame has come when the call that queues the frame returns.
type sendState uint8

const (
	queued     sendState = iota
	partlySent           // some bytes have been written; the rest follows without a call of shouldWrite
	sent                 // all bytes have been written; the caller must call onWritten
)

// put writes or queues a frame. The result is false if the outbox is closed or full. A frame that can be written at
// once is written without a call of shouldWrite, so the caller must have checked the same condition.
func (o *outbox) put(it queuedFrame) (how sendState, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.items) >= o.max {
		return queued, false
	}
	if len(it.frame) <= maxImmediateBytes && len(o.items) == 0 && !o.writing {
		if n := o.writeNow(it.frame); n == len(it.frame) {
			return sent, true
		} else if n > 0 {
			how, it.frame, it.before = partlySent, it.frame[n:], nil
		}
	}
	o.items = append(o.items, it)
	o.ready.Signal()
	return how, true
}

// run writes frames until the outbox is closed or a write fails. Then it closes the connection, which the
// connection's reader notices.
func (o *outbox) run() {
	defer o.conn.Close()
	for {
		o.mu.Lock()
		for len(o.items) == 0 && !o.closed {
			o.ready.Wait()
		}
		if o.closed {
			o.mu.Unlock()
			return
		}
		it := o.items[0]
		o.items = append(o.items[:0], o.items[1:]...)
		o.writing = true
		o.mu.Unlock()

		if it.before != nil && !it.before() {
			o.doneWriting()
			continue
		}
		if err := o.conn.SetWriteDeadline(time.Now().Add(o.stall)); err != nil {
			return
		}
		if _, err := o.conn.Write(it.frame); err != nil {
			return
		}
		// Immediate writes never wait, and must not fail because of an old deadline.
		if err := o.conn.SetWriteDeadline(time.Time{}); err != nil {
			return
		}
		o.doneWriting()
		if it.after != nil {
			it.after()
		}
	}
}

func (o *outbox) doneWriting() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writing = false
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.items = true, nil
	o.ready.Broadcast()
}
