package tcp

import (
	"syscall"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// supply writes the pages of the peer's reads to a stream, until it ends or the link does.
func (r *receiver) supply(st *stream) {
	for {
		s, pair, ok := r.supplies.take()
		if !ok {
			return
		}
		if !s.Begin(pair) {
			continue
		}
		code := r.send(st, s, pair)
		s.End(pair, code)
		if code == effects.PeerLost {
			return
		}
	}
}

// send writes one page. If its grant is taken back meanwhile, the page is filled up with zeros: the peer, which was
// told how long it is, must find the next one.
func (r *receiver) send(st *stream, s *link.Supply, i int) effects.Code {
	if err := st.conn.SetWriteDeadline(time.Now().Add(r.in.Bounds().Stall)); err != nil {
		return effects.PeerLost
	}
	length := s.Pairs()[i].Local.Length
	var head [headBytes]byte
	putHead(head[:], s.Number(), uint32(i), length)
	loan := s.Loan()
	n, err := st.send(head[:], int(length), func() []byte { return loan.Hold(i) }, loan.Unhold)
	switch {
	case err != nil:
		return effects.PeerLost
	case n == 0: // Nothing has left, not even the head.
		return effects.Withdrawn
	case n < headBytes+int(length):
		if err := st.fill(head[min(n, headBytes):], headBytes+int(length)-max(n, headBytes)); err != nil {
			return effects.PeerLost
		}
		return effects.Withdrawn
	}
	return effects.OK
}

// send writes a head and length bytes of a page. It ends early, without an error, when hold gives nothing: the page is
// not to be read any more. The sister of store: the page is held for one write that does not block, so that no peer
// which takes nothing keeps a page from its owner.
func (s *stream) send(head []byte, length int, hold func() []byte, unhold func()) (n int, err error) {
	var sendErr error
	total := len(head) + length
	err = s.raw.Write(func(fd uintptr) bool {
		for n < total {
			src := hold()
			if src == nil {
				return true
			}
			at := max(n-len(head), 0)
			parts := [][]byte{head[min(n, len(head)):], src[at:min(length, at+holdBytes)]}
			wrote, e := s.calls.send(int(fd), parts)
			unhold()
			switch e {
			case nil:
				n += wrote
			case syscall.EINTR:
			case syscall.EAGAIN:
				return false
			default:
				sendErr = e
				return true
			}
		}
		return true
	})
	if err == nil {
		err = sendErr
	}
	return n, err
}

// fill writes head and length zeros.
func (s *stream) fill(head []byte, length int) error {
	if _, err := s.conn.Write(head); err != nil {
		return err
	}
	zeros := make([]byte, min(length, 64<<10))
	for length > 0 {
		n, err := s.conn.Write(zeros[:min(length, len(zeros))])
		if err != nil {
			return err
		}
		length -= n
	}
	return nil
}
