package tcp

import (
	"fmt"
	"net"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// A receiver owns the streams of an incoming link. The pages of the peer's pushes arrive on the streams, and the pages
// of the peer's reads are written to the streams.
type receiver struct {
	in    *link.IncomingLink
	reads *queue[*link.ServedRead]

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // at most maxStreams
	closed bool
}

// Receive does nothing: the streams look the push up when its pages arrive.
func (r *receiver) Receive(*link.Push) {}

// HasPermit accepts slot zero only, because this plane has no permits.
func (r *receiver) HasPermit(slot uint32) bool { return slot == 0 }

// ServeRead implements link.ReadServer.
func (r *receiver) ServeRead(s *link.ServedRead) { r.reads.addBatch(s) }

// DropRead implements link.ReadServer.
func (r *receiver) DropRead(s *link.ServedRead) { r.reads.removeBatch(s) }

func (r *receiver) addConn(conn net.Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return net.ErrClosed
	}
	if len(r.conns) == maxStreams {
		return fmt.Errorf("%w: more than %d streams", link.ErrMalformed, maxStreams)
	}
	r.conns[conn] = struct{}{}
	return nil
}

func (r *receiver) removeConn(conn net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
}

// Close ends the streams and waits until no stream stores any more.
func (r *receiver) Close() {
	r.reads.close()
	r.mu.Lock()
	r.closed = true
	for conn := range r.conns {
		_ = conn.Close()
	}
	r.mu.Unlock()
	r.in.WaitIdle()
}

// serveStream moves pages over a stream until the stream ends.
func (r *receiver) serveStream(st *stream) error {
	var writer sync.WaitGroup
	writer.Go(func() {
		defer st.conn.Close() // The reader below notices.
		r.serveReads(st)
	})
	defer writer.Wait()
	// When a stream ends, the link must end, because pages may be missing. That also ends the writer's work.
	defer r.in.Fail()
	var push *link.Push // the push of the newest page; nil if that push has ended
	for {
		number, pair, length, err := st.nextHeader(r.in.Pool().Buffer().PageBytes)
		if err != nil {
			return err
		}
		if push == nil || push.Number() != number {
			alive := false
			if push, alive = r.in.FindPush(number); !alive {
				return net.ErrClosed
			}
		}
		if err := r.storePage(st, push, pair, length); err != nil {
			return err
		}
	}
}

// storePage stores a page, or discards the page if the push is no longer wanted.
func (r *receiver) storePage(st *stream, push *link.Push, pair uint32, length int) error {
	if push == nil {
		return st.discardBytes(length)
	}
	if int64(pair) >= int64(len(push.Pairs())) || push.Pairs()[pair].Local.Length != uint32(length) {
		return fmt.Errorf("%w: pair %d of %d bytes was not requested", link.ErrMalformed, pair, length)
	}
	i := int(pair)
	if !push.BeginPair(i) {
		return st.discardBytes(length)
	}
	claim := push.Claim()
	stored, left, err := st.storePage(length, func() []byte { return claim.Hold(i) }, func() { claim.Release(i) })
	switch {
	case err != nil:
		push.EndPair(i, effects.PeerLost)
		return err
	case !stored:
		push.EndPair(i, effects.Withdrawn)
		return st.discardBytes(left)
	}
	push.EndPair(i, effects.OK)
	return nil
}
