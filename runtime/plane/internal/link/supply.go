package link

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A Supply is one batch that a peer reads from us and the pool let in.
//
//   - open: pages are sent
//   - stopped: after the first failure or a cancel; no page is begun
//   - ended: no page is being sent; the peer was told how it ended
type Supply struct {
	link   *Incoming
	number uint64
	pairs  []effects.Pair // Local is the peer's page, Remote ours
	loan   *plane.Loan
	from   Supplier
	progress
}

// Number names the read.
func (s *Supply) Number() uint64 { return s.number }

// Pairs are the pages to send, Local.Length bytes of each. They are not to be changed.
func (s *Supply) Pairs() []effects.Pair { return s.pairs }

// Loan is the leave to read them. It is to be used between Begin and End only.
func (s *Supply) Loan() *plane.Loan { return s.loan }

// supply lets in what a peer wants to read, or answers why not.
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
	loan, code := pool.Loan(in.hello.From, a.Grant, pages)
	if code != effects.OK {
		return nil, code
	}
	return &Supply{link: in, number: a.Transfer, pairs: a.Pairs, loan: loan, from: from,
		progress: newProgress(len(a.Pairs))}, effects.OK
}

// Begin starts to send so many pairs from the first on, of which none was begun; false says that they are not wanted.
// After true, End follows.
func (s *Supply) Begin(first, pairs int) bool {
	s.link.plane.mu.Lock()
	defer s.link.plane.mu.Unlock()
	for i := first; i < first+pairs; i++ {
		if !s.begin(i) {
			return false // Nothing of the read is wanted, so it was not of the first one either.
		}
	}
	return true
}

// End says that those pairs are not being sent any more: so many of them were sent whole, and if the code is not OK, the
// read stops.
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

// abort ends the read soon: no page is begun.
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
