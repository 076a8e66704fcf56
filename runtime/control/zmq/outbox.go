package zmq

import (
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/runtime/internal/nowait"
)

const (
	// outboxSpare is the number of bytes that an outbox takes beside a message of the greatest length.
	outboxSpare = 64 << 10
	// outboxReadLimit limits the bytes that wait in an outbox while more is read from the connection. A peer that
	// reads no replies can therefore send no further requests.
	outboxReadLimit = 64 << 10
)

// outbox holds the bytes that still have to leave on a connection. Senders never block: bytes that the system does not
// take at once are written by a goroutine, which exists only while bytes wait.
type outbox struct {
	conn         net.Conn
	raw          syscall.RawConn
	limit        int
	writeTimeout time.Duration // how long the writer waits for a peer that reads nothing
	writers      *sync.WaitGroup
	// onWritten, if set, is called by the writer with the number of bytes that have left so far, counted as in total.
	onWritten func(sum uint64)

	mu            sync.Mutex
	shrunk        sync.Cond // signals that fewer bytes wait, or that the connection is over
	bytes         []byte
	beingWritten  int    // bytes that the writer has taken out and not written yet
	total         uint64 // of all bytes that were ever accepted
	writerRunning bool
	closed        bool
	drained       chan struct{} // if not nil, closed when nothing is left
}

func newOutbox(conn net.Conn, limit int, writeTimeout time.Duration, writers *sync.WaitGroup) *outbox {
	o := &outbox{conn: conn, raw: nowait.RawConn(conn), limit: limit, writeTimeout: writeTimeout, writers: writers}
	o.shrunk.L = &o.mu
	return o
}

// sendBytes accepts a copy of wire. The result is false if the connection is over or too much waits already.
func (o *outbox) sendBytes(wire []byte) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.enqueue(wire)
}

// sendTracked is send for a caller that wants to know when wire has left: once sum bytes have left, which onWritten
// reports. written says that wire has left already.
func (o *outbox) sendTracked(wire []byte) (sum uint64, written, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ok = o.enqueue(wire)
	return o.total, !o.writerRunning, ok
}

// sendIfIdle accepts a copy of wire if nothing else waits. A PONG is sent this way, because whatever waits shows the
// peer just as well that this end is alive.
func (o *outbox) sendIfIdle(wire []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.writerRunning {
		o.enqueue(wire)
	}
}

// enqueue writes what the system takes at once and keeps the rest for the writer. The caller holds mu.
func (o *outbox) enqueue(wire []byte) bool {
	if o.closed || len(wire) > o.limit-len(o.bytes)-o.beingWritten {
		return false
	}
	o.total += uint64(len(wire))
	if !o.writerRunning {
		wire = wire[nowait.WriteNow(o.raw, wire):]
		if len(wire) == 0 {
			return true
		}
		o.writerRunning = true
		o.writers.Go(o.writeAll)
	}
	o.bytes = append(o.bytes, wire...)
	return true
}

// writeAll empties the outbox, then frees the buffer.
func (o *outbox) writeAll() {
	var b []byte
	for {
		o.mu.Lock()
		o.beingWritten = 0
		o.shrunk.Broadcast()
		sum, tell, over := o.total-uint64(len(o.bytes)), o.onWritten != nil && !o.closed, len(o.bytes) == 0 || o.closed
		if over {
			o.writerRunning, o.bytes = false, nil
			o.signalDrained()
		} else {
			b, o.bytes = o.bytes, b[:0]
			o.beingWritten = len(b)
		}
		o.mu.Unlock()
		if tell {
			o.onWritten(sum)
		}
		if over {
			return
		}
		_ = o.conn.SetWriteDeadline(time.Now().Add(o.writeTimeout))
		if _, err := o.conn.Write(b); err != nil {
			_ = o.conn.Close() // The goroutine that reads the connection ends by this.
			o.close()
		}
		_ = o.conn.SetWriteDeadline(time.Time{}) // An expired deadline would make every later write fail at once.
	}
}

// signalDrained closes the channel that drain returned. The caller holds mu.
func (o *outbox) signalDrained() {
	if o.drained != nil {
		close(o.drained)
		o.drained = nil
	}
}

// waitForRoom blocks until few bytes wait or the connection is over, at most for the writer's timeout.
func (o *outbox) waitForRoom() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && len(o.bytes)+o.beingWritten > outboxReadLimit {
		o.shrunk.Wait()
	}
}

// drainChan returns a channel that is closed when no bytes wait.
func (o *outbox) drainChan() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	done := make(chan struct{})
	if !o.writerRunning {
		close(done)
		return done
	}
	if o.drained == nil {
		o.drained = done
	}
	return o.drained
}

// close accepts nothing more and drops the bytes that wait.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.bytes = true, nil
	o.shrunk.Broadcast()
}
