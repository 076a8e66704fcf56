package zmq

import (
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/runtime/internal/nowait"
)

const (
	// outboxSpare is what an outbox takes beside one message of the greatest length.
	outboxSpare = 64 << 10
	// outboxCalm is how much may wait in it while more is read of its connection: who takes no answers gets no further.
	outboxCalm = 64 << 10
)

// outbox is what still has to leave on one connection. Whoever sends never waits: what the system does not take at once
// a goroutine writes, which is there only as long as there is something.
type outbox struct {
	conn     net.Conn
	raw      syscall.RawConn
	max      int
	patience time.Duration // of the writer with a peer that reads nothing
	writers  *sync.WaitGroup
	// left, if set, is told by the writer what of everything has left by now, as push counts it.
	left func(sum uint64)

	mu      sync.Mutex
	fewer   sync.Cond // told when less waits, and at the end
	bytes   []byte
	leaving int    // bytes that the writer has taken out and not written yet
	sum     uint64 // of all bytes that were ever taken
	writing bool
	closed  bool
	drained chan struct{} // not nil: to be closed when nothing is left
}

func newOutbox(conn net.Conn, limit int, patience time.Duration, writers *sync.WaitGroup) *outbox {
	o := &outbox{conn: conn, raw: nowait.Raw(conn), max: limit, patience: patience, writers: writers}
	o.fewer.L = &o.mu
	return o
}

// send takes a copy of wire, or says that the connection is gone or its peer takes too little.
func (o *outbox) send(wire []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.add(wire)
}

// push is send, and says which sum has left when wire has, and whether it has already.
func (o *outbox) push(wire []byte) (sum uint64, gone, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ok = o.add(wire)
	return o.sum, !o.writing, ok
}

// sendIfIdle takes a copy of wire if nothing else waits: so a PONG, which says no more than what waits would.
func (o *outbox) sendIfIdle(wire []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.writing {
		o.add(wire)
	}
}

func (o *outbox) add(wire []byte) bool {
	if o.closed || len(wire) > o.max-len(o.bytes)-o.leaving {
		return false
	}
	o.sum += uint64(len(wire))
	if !o.writing {
		wire = wire[nowait.Write(o.raw, wire):]
		if len(wire) == 0 {
			return true
		}
		o.writing = true
		o.writers.Go(o.write)
	}
	o.bytes = append(o.bytes, wire...)
	return true
}

// write empties the outbox, and keeps no memory of how full it was.
func (o *outbox) write() {
	var b []byte
	for {
		o.mu.Lock()
		o.leaving = 0
		o.fewer.Broadcast()
		sum, tell, over := o.sum-uint64(len(o.bytes)), o.left != nil && !o.closed, len(o.bytes) == 0 || o.closed
		if over {
			o.writing, o.bytes = false, nil
			o.finish()
		} else {
			b, o.bytes = o.bytes, b[:0]
			o.leaving = len(b)
		}
		o.mu.Unlock()
		if tell {
			o.left(sum)
		}
		if over {
			return
		}
		_ = o.conn.SetWriteDeadline(time.Now().Add(o.patience))
		if _, err := o.conn.Write(b); err != nil {
			_ = o.conn.Close() // Its reader ends by this.
			o.close()
		}
		_ = o.conn.SetWriteDeadline(time.Time{}) // With one that is over, nothing more would leave at once.
	}
}

func (o *outbox) finish() {
	if o.drained != nil {
		close(o.drained)
		o.drained = nil
	}
}

// calm waits until little is left to leave, or the connection is over: at most for the writer's patience.
func (o *outbox) calm() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && len(o.bytes)+o.leaving > outboxCalm {
		o.fewer.Wait()
	}
}

// drain returns a channel that is closed when nothing is left to leave.
func (o *outbox) drain() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	done := make(chan struct{})
	if !o.writing {
		close(done)
		return done
	}
	if o.drained == nil {
		o.drained = done
	}
	return o.drained
}

// close takes nothing more and forgets what is left.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.bytes = true, nil
	o.fewer.Broadcast()
}
