package link

import (
	"net"
	"sync"
	"time"
)

// An outbox writes frames to a connection in order, so that nobody who decides waits for a peer.
type outbox struct {
	conn  net.Conn
	stall time.Duration // longest time one write takes

	mu     sync.Mutex
	ready  sync.Cond
	items  []item
	max    int
	closed bool
}

// An item is one frame. before, if set, is asked right before the write whether to write at all;
// after is called when it has left.
type item struct {
	frame  []byte
	before func() bool
	after  func()
}

func newOutbox(conn net.Conn, limit int, stall time.Duration) *outbox {
	o := &outbox{conn: conn, stall: stall, max: limit}
	o.ready.L = &o.mu
	return o
}

// put queues a frame; it fails when closed or full.
func (o *outbox) put(it item) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || len(o.items) >= o.max {
		return false
	}
	o.items = append(o.items, it)
	o.ready.Signal()
	return true
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
		o.mu.Unlock()

		if it.before != nil && !it.before() {
			continue
		}
		if err := o.conn.SetWriteDeadline(time.Now().Add(o.stall)); err != nil {
			return
		}
		if _, err := o.conn.Write(it.frame); err != nil {
			return
		}
		if it.after != nil {
			it.after()
		}
	}
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.items = true, nil
	o.ready.Broadcast()
}
