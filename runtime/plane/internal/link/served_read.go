package link

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A ServedRead is a batch that a peer reads from us and that the pool has admitted. The states are:
//
//   - open: pages are sent
//   - stopped: after the first failure or a cancel; no further page is begun
//   - ended: no page is being sent, and the peer was sent the result
type ServedRead struct {
	link   *Incoming
	number uint64
	pairs  []effects.Pair // Local is the peer's page, Remote ours
	claim  *plane.ReadClaim
	from   ReadServer
	progress
}

// Number returns the number of the read.
func (s *ServedRead) Number() uint64 { return s.number }

// Pairs returns the pages to send, Local.Length bytes of each. The slice must not be changed.
func (s *ServedRead) Pairs() []effects.Pair { return s.pairs }

// Claim returns the claim on the pages to read. The claim may be used between BeginPairs and EndPairs only.
func (s *ServedRead) Claim() *plane.ReadClaim { return s.claim }

// acceptRead admits a read that a peer requests, or answers with the reason for refusing it.
func (in *Incoming) acceptRead(a TransferRequest) error {
	supplier, ok := in.receiver.(ReadServer)
	if !ok || a.Slot != 0 {
		return fmt.Errorf("%w: read %d with slot %d; peers of this plane read by themselves, and reads have no slot",
			ErrMalformed, a.Transfer, a.Slot)
	}
	p := in.plane
	p.mu.Lock()
	if err := in.advance(a.Transfer); err != nil {
		p.mu.Unlock()
		return err
	}
	s, code := in.admitRead(a, supplier)
	if code == effects.OK {
		in.servedReads[a.Transfer] = s
		in.pages += len(a.Pairs)
	} else {
		in.sendDone(a.Transfer, code)
	}
	p.mu.Unlock()
	if code == effects.OK {
		supplier.ServeRead(s)
	}
	return nil
}

func (in *Incoming) admitRead(a TransferRequest, from ReadServer) (*ServedRead, effects.Code) {
	if in.atLimit(len(a.Pairs)) {
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
	return &ServedRead{link: in, number: a.Transfer, pairs: a.Pairs, claim: loan, from: from,
		progress: newProgress(len(a.Pairs))}, effects.OK
}

// BeginPairs starts to send so many pairs from first on, none of which may have been begun. The result is false if the
// pairs are not wanted; after true the caller must call EndPairs.
func (s *ServedRead) Begin(first, pairs int) bool {
	s.link.plane.mu.Lock()
	defer s.link.plane.mu.Unlock()
	for i := first; i < first+pairs; i++ {
		if !s.begin(i) {
			return false // If a pair of the read is not wanted, no pair is wanted; so this was the first pair.
		}
	}
	return true
}

// EndPairs records that these pairs are no longer being sent. The first pairs, as many as whole says, were sent
// completely; if the code is not OK, the read stops.
func (s *ServedRead) End(first, pairs, whole int, code effects.Code) {
	s.link.plane.mu.Lock()
	defer s.link.plane.mu.Unlock()
	for i := range pairs {
		if i < whole {
			s.end(first+i, effects.OK)
		} else {
			s.end(first+i, code)
		}
	}
	s.endIfFinished()
}

// abortRead ends the read soon: no further page is begun.
func (s *ServedRead) abort(code effects.Code) {
	s.stop(code)
	s.endIfFinished()
}

func (s *ServedRead) endIfFinished() {
	if !s.finish() {
		return
	}
	delete(s.link.servedReads, s.number)
	s.link.pages -= len(s.pairs)
	if s.code != effects.OK {
		s.from.DropRead(s)
	}
	s.link.sendDone(s.number, s.code)
}
