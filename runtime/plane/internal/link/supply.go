package link

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A ServedRead is one batch that a peer reads from us and that the pool has admitted. Its states:
//
//   - open: pages are sent
//   - stopped: after the first failure or a cancel; no further page is begun
//   - ended: no page is being sent, and the peer was sent the result
type Supply struct {
	link   *Incoming
	number uint64
	pairs  []effects.Pair // Local is the peer's page, Remote ours
	loan   *plane.ReadClaim
	from   Supplier
	progress
}

// Number returns the number of the read.
func (s *Supply) Number() uint64 { return s.number }

// Pairs returns the pages to send, Local.Length bytes of each. They must not be changed.
func (s *Supply) Pairs() []effects.Pair { return s.pairs }

// Claim returns the claim on the pages to read. It may be used between Begin and End only.
func (s *Supply) Loan() *plane.ReadClaim { return s.loan }

// acceptRead admits a read that a peer requests, or answers with the reason for refusing it.
func (in *Incoming) supply(a Ask) error {
	supplier, ok := in.receiver.(Supplier)
	if !ok || a.Slot != 0 {
		return fmt.Errorf("%w: read %d with slot %d; peers of this plane read by themselves, and reads have no slot",
			ErrMalformed, a.Transfer, a.Slot)
	}
	p := in.plane
	p.mu.Lock()
	if err := in.next(a.Transfer); err != nil {
		p.mu.Unlock()
		return err
	}
	s, code := in.borrow(a, supplier)
	if code == effects.OK {
		in.supplies[a.Transfer] = s
		in.pages += len(a.Pairs)
	} else {
		in.answer(a.Transfer, code)
	}
	p.mu.Unlock()
	if code == effects.OK {
		supplier.Supply(s)
	}
	return nil
}

func (in *Incoming) borrow(a Ask, from Supplier) (*Supply, effects.Code) {
	if in.full(len(a.Pairs)) {
		return nil, effects.TooMany
	}
	pool := in.plane.env.Pool
	pages := make([]effects.Page, len(a.Pairs))
	for i, pair := range a.Pairs {
		pages[i] = effects.Page{Pool: pool.ID(), Index: pair.Remote.Index, Generation: pair.Remote.Generation,
			Length: pair.Local.Length}
	}
	loan, code := pool.ClaimRead(in.hello.From, a.Grant, pages)
	if code != effects.OK {
		return nil, code
	}
	return &Supply{link: in, number: a.Transfer, pairs: a.Pairs, loan: loan, from: from,
		progress: newProgress(len(a.Pairs))}, effects.OK
}

// Begin starts to send so many pairs from first on, none of which may have been begun. It returns false if they are
// not wanted; after true the caller must call End.
func (s *Supply) Begin(first, pairs int) bool {
	s.link.plane.mu.Lock()
	defer s.link.plane.mu.Unlock()
	for i := first; i < first+pairs; i++ {
		if !s.begin(i) {
			return false // If one pair of the read is not wanted, none is; so this was the first.
		}
	}
	return true
}

// End records that these pairs are no longer being sent. The first whole of them were sent completely; if the code is
// not OK, the read stops.
func (s *Supply) End(first, pairs, whole int, code effects.Code) {
	s.link.plane.mu.Lock()
	defer s.link.plane.mu.Unlock()
	for i := range pairs {
		if i < whole {
			s.end(first+i, effects.OK)
		} else {
			s.end(first+i, code)
		}
	}
	s.maybeEnd()
}

// abort ends the read soon: no further page is begun.
func (s *Supply) abort(code effects.Code) {
	s.stop(code)
	s.maybeEnd()
}

func (s *Supply) maybeEnd() {
	if !s.over() {
		return
	}
	delete(s.link.supplies, s.number)
	s.link.pages -= len(s.pairs)
	if s.code != effects.OK {
		s.from.Forget(s)
	}
	s.link.answer(s.number, s.code)
}
