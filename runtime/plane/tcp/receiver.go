package tcp

import (
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane/internal/link"
)

// A receiver owns the streams of one incoming link.
type receiver struct {
	in *link.Incoming

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // at most streamsMax
	closed bool
}

// Receive has nothing to start: the streams find the push when its pages arrive.
func (r *receiver) Receive(*link.Push) {}

// Permits: there are none, and all pushes say so.
func (r *receiver) Permits(slot uint32) bool { return slot == 0 }

func (r *receiver) add(conn net.Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return net.ErrClosed
	}
	if len(r.conns) == streamsMax {
		return fmt.Errorf("%w: more than %d streams", link.ErrMalformed, streamsMax)
	}
	r.conns[conn] = struct{}{}
	return nil
}

func (r *receiver) remove(conn net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, conn)
}

// Close ends the streams and waits until none of them stores.
func (r *receiver) Close() {
	r.mu.Lock()
	r.closed = true
	for conn := range r.conns {
		_ = conn.Close()
	}
	r.mu.Unlock()
	r.in.Still()
}

// A stream reads pages off one connection.
type stream struct {
	in   *link.Incoming
	conn net.Conn
	raw  syscall.RawConn
	head [headBytes]byte
	sink []byte // what is discarded goes here
}

func (s *stream) read() error {
	for {
		if _, err := io.ReadFull(s.conn, s.head[:]); err != nil {
			return err
		}
		number, pair, length := parseHead(s.head[:])
		if limit := s.in.Pool().Buffer().PageBytes; uint64(length) > limit {
			return fmt.Errorf("%w: page of %d bytes; pages here have %d", link.ErrMalformed, length, limit)
		}
		push, alive := s.in.Find(number)
		if !alive {
			return net.ErrClosed
		}
		if err := s.page(push, pair, int(length)); err != nil {
			return err
		}
	}
}

// page reads one page to where it belongs, or nowhere if it is not wanted any more.
func (s *stream) page(push *link.Push, pair uint32, length int) error {
	if push == nil {
		return s.discard(length)
	}
	if int64(pair) >= int64(len(push.Pairs())) || push.Pairs()[pair].Local.Length != uint32(length) {
		return fmt.Errorf("%w: pair %d of %d bytes was not asked for", link.ErrMalformed, pair, length)
	}
	i := int(pair)
	if !push.Begin(i) {
		return s.discard(length)
	}
	n, err := s.store(push, i, length)
	switch {
	case err != nil:
		push.End(i, effects.PeerLost)
		return err
	case n < length:
		push.End(i, effects.Withdrawn)
		return s.discard(length - n)
	}
	push.End(i, effects.OK)
	return nil
}

// store reads length bytes into a page. It ends early, without an error, when the grant is taken back.
//
// The runtime's poller calls the function whenever bytes may be there; holding the page only for one
// read that does not block is what lets Revoke end without the peer's help.
func (s *stream) store(push *link.Push, i, length int) (n int, err error) {
	claim, withdrawn := push.Claim(), false
	var readErr error
	err = s.raw.Read(func(fd uintptr) bool {
		for n < length {
			dst := claim.Hold(i)
			if dst == nil {
				withdrawn = true
				return true
			}
			got, e := syscall.Read(int(fd), dst[n:min(length, n+holdBytes)])
			claim.Unhold(i)
			switch {
			case got > 0:
				n += got
			case e == syscall.EINTR:
			case e == syscall.EAGAIN:
				return false
			case e != nil:
				readErr = e
				return true
			default:
				readErr = io.ErrUnexpectedEOF
				return true
			}
		}
		return true
	})
	if err == nil && !withdrawn {
		err = readErr
	}
	return n, err
}

func (s *stream) discard(length int) error {
	if s.sink == nil {
		s.sink = make([]byte, 64<<10)
	}
	for length > 0 {
		n, err := s.conn.Read(s.sink[:min(length, len(s.sink))])
		if err != nil {
			return err
		}
		length -= n
	}
	return nil
}
