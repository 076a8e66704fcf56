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
			t, pair, ok := s.pushes.take()
			if !ok || !s.write(st, t, pair) {
				return
			}
		}
	})
	s.wg.Go(func() {
		defer s.out.Fail()
		_ = s.load(st) // How the link ended is told by its first connection.
	})
}

func (s *sender) write(st *stream, t *link.Transfer, i int) bool {
	if !t.Begin() {
		return true
	}
	if !s.send(st, t, i) {
		t.End()
		return false
	}
	t.Sent()
	return true
}

// send writes a page, all of it or the stream is of no use any more.
func (s *sender) send(st *stream, t *link.Transfer, i int) bool {
	length := t.Pairs()[i].Local.Length
	if err := st.conn.SetWriteDeadline(time.Now().Add(s.out.Bounds().Stall)); err != nil {
		return false
	}
	var head [headBytes]byte
	putHead(head[:], t.Number(), uint32(i), length)
	buffers := append(st.buffers[:0], head[:])
	for piece := range t.Pieces(i) {
		buffers = append(buffers, s.host(piece.Page)[piece.From:piece.From+piece.Bytes])
	}
	st.buffers = buffers               // Which writing consumes.
	_, err := buffers.WriteTo(st.conn) // One call for header and page, but for one of very many pieces.
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
