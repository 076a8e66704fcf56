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
	link   *IncomingLink
	number uint64
	pairs  []effects.Pair // Local is the peer's page, Remote ours
	claim  *plane.ReadClaim
	server ReadServer
	progress
}

// Number returns the number of the read.
func (s *ServedRead) Number() uint64 { return s.number }

// Pairs returns the pages to send, Local.Length bytes of each. The slice must not be changed.
func (s *ServedRead) Pairs() []effects.Pair { return s.pairs }

// Claim returns the claim on the pages to read. The claim may be used between BeginPairs and EndPairs only.
func (s *ServedRead) Claim() *plane.ReadClaim { return s.claim }

// acceptRead admits a read that a peer requests, or answers with the reason for refusing it.
func (in *IncomingLink) acceptRead(request TransferRequest) error {
	server, ok := in.receiver.(ReadServer)
	if !ok || request.Slot != 0 {
		return fmt.Errorf("%w: read %d with slot %d; reads have no slot, and on shm a peer reads without a request",
			ErrMalformed, request.Transfer, request.Slot)
	}
	p := in.plane
	p.mu.Lock()
	if err := in.recordRequest(request.Transfer); err != nil {
		p.mu.Unlock()
		return err
	}
	s, code := in.admitRead(request, server)
	if code == effects.OK {
		in.servedReads[request.Transfer] = s
		in.pages += len(request.Pairs)
	} else {
		in.sendDone(request.Transfer, code)
	}
	p.mu.Unlock()
	if code == effects.OK {
		server.ServeRead(s)
	}
	return nil
}

func (in *IncomingLink) admitRead(request TransferRequest, server ReadServer) (*ServedRead, effects.Code) {
	if in.exceedsLimits(len(request.Pairs)) {
		return nil, effects.TooMany
	}
	pool := in.plane.env.Pool
	pages := make([]effects.Page, len(request.Pairs))
	for i, pair := range request.Pairs {
		pages[i] = effects.Page{Pool: pool.ID(), Index: pair.Remote.Index, Generation: pair.Remote.Generation,
			Length: pair.Local.Length}
	}
	claim, code := pool.ClaimRead(in.hello.From, request.Grant, pages)
	if code != effects.OK {
		return nil, code
	}
	return &ServedRead{link: in, number: request.Transfer, pairs: request.Pairs, claim: claim, server: server,
		progress: newProgress(len(request.Pairs))}, effects.OK
}

// BeginPairs starts to send so many pairs from first on, none of which may have been begun. The result is false if the
// pairs are not wanted; after true the caller must call EndPairs.
func (s *ServedRead) BeginPairs(first, pairs int) bool {
	s.link.plane.mu.Lock()
	defer s.link.plane.mu.Unlock()
	for i := first; i < first+pairs; i++ {
		if !s.beginPair(i) {
			return false // If a pair of the read is not wanted, no pair is wanted; so this was the first pair.
		}
	}
	return true
}

// EndPairs records that these pairs are no longer being sent. The first pairs, as many as whole says, were sent
// completely; if the code is not OK, the read stops.
func (s *ServedRead) EndPairs(first, pairs, whole int, code effects.Code) {
	s.link.plane.mu.Lock()
	defer s.link.plane.mu.Unlock()
	for i := range pairs {
		if i < whole {
			s.endPair(first+i, effects.OK)
		} else {
			s.endPair(first+i, code)
		}
	}
	s.endIfFinished()
}

// abortRead ends the read soon: no further page is begun.
func (s *ServedRead) abortRead(code effects.Code) {
	s.stopBatch(code)
	s.endIfFinished()
}

func (s *ServedRead) endIfFinished() {
	if !s.finishOnce() {
		return
	}
	delete(s.link.servedReads, s.number)
	s.link.pages -= len(s.pairs)
	if s.code != effects.OK {
		s.server.DropRead(s)
	}
	s.link.sendDone(s.number, s.code)
}
