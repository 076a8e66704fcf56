package link

import (
	"net"
	"sync"
	"time"

	"github.com/kvferry/kvferry/runtime/internal/nowait"
)

// An outbox writes frames to a connection in order, so that nobody who decides waits for a peer. A small frame that
// finds it empty is written at once, as far as the system takes it; a goroutine writes the rest and all others.
type outbox struct {
	conn  net.Conn
	stall time.Duration // longest time one write takes
	// now writes what the system takes at once. An error is the goroutine's to find.
	now func(b []byte) (n int)

	mu      sync.Mutex
	ready   sync.Cond
	items   []item
	max     int
	writing bool // the goroutine has an item that it has taken out
	closed  bool
}

// nowBytes is the longest frame that is written at once: who decides may hold the plane's mutex meanwhile.
const nowBytes = 4 << 10

// An item is one frame. before, if set, is asked right before the write whether to write at all;
// after is called when it has left.
type item struct {
	frame  []byte
	before func() bool
	after  func()
}

func newOutbox(conn net.Conn, limit int, stall time.Duration) *outbox {
	raw := nowait.Raw(conn)
	o := &outbox{conn: conn, stall: stall, max: limit, now: func(b []byte) int { return nowait.Write(raw, b) }}
	o.ready.L = &o.mu
	return o
}

// leaving is how far a frame has come that was put into an outbox.
type leaving uint8

const (
	queued leaving = iota
	begun          // some of it has left, and the rest follows whatever before would say
	gone           // all of it has left: after is the caller's to call
)

// put writes a frame, or queues it; it fails when closed or full. A frame that is written at once is one that its before
// would let leave: the caller knows that.
func (o *outbox) put(it item) (how leaving, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.items) >= o.max {
		return queued, false
	}
	if len(it.frame) <= nowBytes && len(o.items) == 0 && !o.writing {
		if n := o.now(it.frame); n == len(it.frame) {
			return gone, true
		} else if n > 0 {
			how, it.frame, it.before = begun, it.frame[n:], nil
		}
	}
	o.items = append(o.items, it)
	o.ready.Signal()
	return how, true
}

// run writes until the outbox is closed or the peer takes nothing any more; then it closes the
// connection, which its reader notices.
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
			o.written()
			continue
		}
		if err := o.conn.SetWriteDeadline(time.Now().Add(o.stall)); err != nil {
			return
		}
		if _, err := o.conn.Write(it.frame); err != nil {
			return
		}
		// What is written at once never waits, and must not fail by a deadline of before.
		if err := o.conn.SetWriteDeadline(time.Time{}); err != nil {
			return
		}
		o.written()
		if it.after != nil {
			it.after()
		}
	}
}

func (o *outbox) written() {
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
