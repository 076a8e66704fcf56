package tcp

import (
	"net"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// A sender owns the streams of an outgoing link. It writes the pages of our pushes to them, and reads those of our
// reads from them.
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

// Load implements link.Sender: the streams find the read when its pages arrive.
func (s *sender) Load(*link.Read) (ask bool) { return true }

// serve takes a stream over. A page that was not moved whole ruins the stream, and with it the link.
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
		_ = s.load(st) // How the link ended is told by its first connection.
	})
}

func (s *sender) write(st *stream, t *link.Transfer, r run) bool {
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

// send writes the pages of a run, all of them or the stream is of no use any more. The peer takes them within the bound
// of a stall, as it would have to take one page of so many bytes.
func (s *sender) send(st *stream, t *link.Transfer, r run) bool {
	if err := st.conn.SetWriteDeadline(time.Now().Add(s.out.Bounds().Stall)); err != nil {
		return false
	}
	buffers := st.buffers[:0]
	for i := r.first; i < r.first+r.pages; i++ {
		buffers = append(buffers, st.headOf(i-r.first, t.Number(), uint32(i), t.Pairs()[i].Local.Length))
		for piece := range t.Pieces(i) {
			buffers = append(buffers, s.host(piece.Page)[piece.From:piece.From+piece.Bytes])
		}
	}
	st.buffers = buffers               // Which writing consumes.
	_, err := buffers.WriteTo(st.conn) // One call for all heads and pages, but for pages of very many pieces.
	return err == nil
}

func (s *sender) host(page effects.Page) []byte { return s.out.Pool().Host(page) }

// Close implements link.Sender.
func (s *sender) Close() {
	s.pushes.close()
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.wg.Wait()
}
