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
	out    *link.Outgoing
	pushes *queue[*link.Transfer]
	conns  []net.Conn
	wg     sync.WaitGroup
}

func newSender(out *link.Outgoing) *sender {
	return &sender{out: out, pushes: newQueue[*link.Transfer]()}
}

// Send implements link.Sender.
func (s *sender) Send(t *link.Transfer) { s.pushes.add(t) }

// StartRead implements link.Sender. The streams look the read up when its pages arrive.
func (s *sender) StartRead(*link.Read) (ask bool) { return true }

// serve takes over a stream. A page that is moved only in part makes the stream unusable, and ends the link.
func (s *sender) serve(st *stream) {
	s.conns = append(s.conns, st.conn)
	s.wg.Go(func() {
		defer s.out.Fail()
		for {
			t, r, ok := s.pushes.take()
			if !ok || !s.write(st, t, r) {
				return
			}
		}
	})
	s.wg.Go(func() {
		defer s.out.Fail()
		_ = s.receivePages(st) // The link's first connection reports how the link ended.
	})
}

func (s *sender) write(st *stream, t *link.Transfer, r pageRun) bool {
	if !t.Begin(r.pages) {
		return true
	}
	if !s.send(st, t, r) {
		t.End()
		return false
	}
	t.Sent(r.pages)
	return true
}

// sendRun writes all pages of a run. If a write fails, the stream is unusable. The peer must take the run within
// Bounds.Stall, like a page of that size.
func (s *sender) send(st *stream, t *link.Transfer, r pageRun) bool {
	if err := st.conn.SetWriteDeadline(time.Now().Add(s.out.Bounds().Stall)); err != nil {
		return false
	}
	buffers := st.buffers[:0]
	for i := r.first; i < r.first+r.pages; i++ {
		buffers = append(buffers, st.setHead(i-r.first, t.Number(), uint32(i), t.Pairs()[i].Local.Length))
		for piece := range t.Pieces(i) {
			buffers = append(buffers, s.host(piece.Page)[piece.From:piece.From+piece.Bytes])
		}
	}
	st.buffers = buffers               // WriteTo consumes buffers.
	_, err := buffers.WriteTo(st.conn) // One system call for all headers and pages, unless pages have very many pieces.
	return err == nil
}

func (s *sender) host(page effects.Page) []byte { return s.out.Pool().Bytes(page) }

// Close implements link.Sender.
func (s *sender) Close() {
	s.pushes.close()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.wg.Wait()
}
