package tcp

import (
	"net"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// A sender owns the streams of an outgoing link. The pages of our pushes are written to the streams, and the pages of
// our reads arrive on the streams.
type sender struct {
	out    *link.OutgoingLink
	pushes *queue[*link.Transfer]
	conns  []net.Conn
	wg     sync.WaitGroup
}

func newSender(out *link.OutgoingLink) *sender {
	return &sender{out: out, pushes: newQueue[*link.Transfer]()}
}

// Send implements link.Sender.
func (s *sender) Send(t *link.Transfer) { s.pushes.addBatch(t) }

// StartRead implements link.Sender. The streams look the read up when its pages arrive.
func (s *sender) StartRead(*link.Read) (ask bool) { return true }

// serveStream takes over a stream. A page that is moved only in part makes the stream unusable, and ends the link.
func (s *sender) serveStream(st *stream) {
	s.conns = append(s.conns, st.conn)
	s.wg.Go(func() {
		defer s.out.Fail()
		for {
			t, r, ok := s.pushes.takeRun()
			if !ok || !s.writeRun(st, t, r) {
				return
			}
		}
	})
	s.wg.Go(func() {
		defer s.out.Fail()
		_ = s.receivePages(st) // The link's first connection reports how the link ended.
	})
}

func (s *sender) writeRun(st *stream, t *link.Transfer, r pageRun) bool {
	if !t.BeginAccess(r.pages) {
		return true
	}
	if !s.sendRun(st, t, r) {
		t.EndAccess()
		return false
	}
	t.EndSend(r.pages)
	return true
}

// sendRun writes all pages of a run. If a write fails, the stream is unusable. The peer must take the run within
// Bounds.StallTimeout, like a page of that size.
func (s *sender) sendRun(st *stream, t *link.Transfer, r pageRun) bool {
	if err := st.conn.SetWriteDeadline(time.Now().Add(s.out.Bounds().StallTimeout)); err != nil {
		return false
	}
	buffers := st.buffers[:0]
	for i := r.first; i < r.first+r.pages; i++ {
		buffers = append(buffers, st.setHeader(i-r.first, t.Number(), uint32(i), t.Pairs()[i].Local.Length))
		for piece := range t.Pieces(i) {
			buffers = append(buffers, s.localPage(piece.Page)[piece.From:piece.From+piece.Bytes])
		}
	}
	st.buffers = buffers // writeBuffers consumes its copy of the slice.
	return st.writeBuffers(buffers) == nil
}

func (s *sender) localPage(page effects.Page) []byte { return s.out.Pool().Bytes(page) }

// Close implements link.Sender.
func (s *sender) Close() {
	s.pushes.close()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.wg.Wait()
}
