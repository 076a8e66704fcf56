package tcp

import (
	"net"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// A sender writes the pages of one link's transfers over its streams.
type sender struct {
	out *link.Outgoing
	wg  sync.WaitGroup

	mu    sync.Mutex
	ready sync.Cond
	// jobs are transfers with pages left to write, oldest first; the plane bounds their number.
	jobs   []*job
	conns  []net.Conn
	closed bool
}

type job struct {
	transfer *link.Transfer
	next     int
}

func newSender(out *link.Outgoing) *sender {
	s := &sender{out: out}
	s.ready.L = &s.mu
	return s
}

func (s *sender) Send(t *link.Transfer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, &job{transfer: t})
	s.ready.Broadcast()
}

// take returns the next page of the oldest transfer.
func (s *sender) take() (t *link.Transfer, pair int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.jobs) == 0 && !s.closed {
		s.ready.Wait()
	}
	if s.closed {
		return nil, 0, false
	}
	j := s.jobs[0]
	pair = j.next
	if j.next++; j.next == len(j.transfer.Pairs()) {
		s.jobs = append(s.jobs[:0], s.jobs[1:]...)
	}
	return j.transfer, pair, true
}

// serve starts a stream.
func (s *sender) serve(conn *net.TCPConn) {
	s.mu.Lock()
	s.conns = append(s.conns, conn)
	s.mu.Unlock()
	s.wg.Go(func() {
		// A page that was not written whole ruins the stream, and with it the link.
		defer s.out.Fail()
		for {
			t, pair, ok := s.take()
			if !ok || !s.write(conn, t, pair) {
				return
			}
		}
	})
}

func (s *sender) write(conn *net.TCPConn, t *link.Transfer, i int) bool {
	if !t.Begin() {
		return true
	}
	defer t.End()
	page := t.Pairs()[i].Local
	if err := conn.SetWriteDeadline(time.Now().Add(s.out.Bounds().Stall)); err != nil {
		return false
	}
	var head [headBytes]byte
	putHead(head[:], t.Number(), uint32(i), page.Length)
	buffers := net.Buffers{head[:], s.host(page)}
	_, err := buffers.WriteTo(conn) // One call for header and page.
	return err == nil
}

func (s *sender) host(page effects.Page) []byte { return s.out.Pool().Host(page) }

func (s *sender) Close() {
	s.mu.Lock()
	s.closed, s.jobs = true, nil
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.ready.Broadcast()
	s.mu.Unlock()
	s.wg.Wait()
}
