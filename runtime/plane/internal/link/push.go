package link

import (
	"iter"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A Push is a batch that a peer pushes to us and that the pool has admitted. The states are:
//
//   - open: pages are stored
//   - stopped: after the first failure or a cancel; no further page is begun
//   - ended: no page is being stored, Landed was posted, and Confirm is awaited
type Push struct {
	link   *IncomingLink
	number uint64
	slot   uint32         // of the peer's permit
	pairs  []effects.Pair // Local is the peer's page, Remote ours
	gather effects.Gather // the peer's pages, if each page is gathered from several
	claim  *plane.WriteClaim
	small  bool

	progress
}

// Number returns the number of the push.
func (p *Push) Number() uint64 { return p.number }

// Pairs returns the pages to store: Local at the peer, Remote in this process. The slice must not be changed.
func (p *Push) Pairs() []effects.Pair { return p.pairs }

// Pieces returns the parts of which the page of pair i consists at the peer, in the order of the page.
func (p *Push) Pieces(i int) iter.Seq[effects.Piece] { return p.gather.Pieces(i, &p.pairs[i]) }

// A small push has at most smallPairs pairs and smallBytes bytes.
const (
	smallPairs = 16
	smallBytes = 64 << 10
)

// IsSmall reports whether storing the push takes less time than waking another goroutine.
func (p *Push) IsSmall() bool { return p.small }

func isSmallBatch(pairs []effects.Pair) bool {
	bytes := uint64(0)
	for _, pair := range pairs {
		bytes += uint64(pair.Local.Length)
	}
	return len(pairs) <= smallPairs && bytes <= smallBytes
}

// Permit identifies the peer's permission to copy: the slot of its permit, and the transfer's number.
func (p *Push) Permit() (slot uint32, number uint64) { return p.slot, p.number }

// Claim returns the claim on the pages to store into. The claim may be used between BeginPair and EndPair only.
func (p *Push) Claim() *plane.WriteClaim { return p.claim }

// acceptPush admits a push that a peer requests, or answers with the reason for refusing it.
func (in *IncomingLink) acceptPush(request TransferRequest) error {
	p := in.plane
	p.mu.Lock()
	if err := in.recordRequest(request.Transfer); err != nil {
		p.mu.Unlock()
		return err
	}
	push, code := in.admitPush(request)
	if code == effects.OK {
		in.pushes[request.Transfer] = push
		in.pages += len(request.Pairs)
	} else {
		in.sendDone(request.Transfer, code)
	}
	p.mu.Unlock()
	if code == effects.OK {
		in.receiver.Receive(push)
	}
	return nil
}

func (in *IncomingLink) admitPush(request TransferRequest) (*Push, effects.Code) {
	if in.exceedsLimits(len(request.Pairs)) {
		return nil, effects.TooMany
	}
	if !in.receiver.HasPermit(request.Slot) {
		return nil, effects.Invalid
	}
	pool := in.plane.env.Pool
	pages := make([]effects.Page, len(request.Pairs))
	peerBuffer := in.hello.Buffer
	peerHas := func(page effects.Page) bool {
		return page.Index < peerBuffer.Pages && uint64(page.Length) <= peerBuffer.PageBytes
	}
	for _, page := range request.Gather.Pages {
		if !peerHas(page) {
			return nil, effects.Invalid
		}
	}
	for i, pair := range request.Pairs {
		if request.Gather.Layers == 0 && !peerHas(pair.Local) {
			return nil, effects.Invalid
		}
		pages[i] = effects.Page{Pool: pool.ID(), Index: pair.Remote.Index, Generation: pair.Remote.Generation,
			Length: pair.Local.Length}
	}
	claim, code := pool.ClaimWrite(in.hello.From, request.Grant, pages)
	if code != effects.OK {
		return nil, code
	}
	return &Push{link: in, number: request.Transfer, slot: request.Slot, pairs: request.Pairs, gather: request.Gather, claim: claim,
		small: len(request.Gather.Pages) <= smallPairs && isSmallBatch(request.Pairs), progress: newProgress(len(request.Pairs))}, effects.OK
}

// BeginPair starts to store pair i. The result is false if the pair is not wanted; after true the caller must call
// EndPair.
func (p *Push) BeginPair(i int) bool {
	p.link.plane.mu.Lock()
	defer p.link.plane.mu.Unlock()
	if !p.beginPair(i) {
		return false
	}
	p.link.storingPages++
	return true
}

// EndPair records that pair i is no longer being stored. If the code is OK the pair is whole, otherwise the push
// stops.
//
// The machine processes the end of a small push at once, on the goroutine that stored the push. The end of a large
// push is left to the machine's own goroutine, because that step takes longer, and the storing goroutine has more
// pages to store.
//
// A whole pair is compared with its checksum first, while the bytes are still in the caches of the storing goroutine.
func (p *Push) EndPair(i int, code effects.Code) {
	if code == effects.OK {
		code = p.claim.Verify(i)
	}
	if p.IsSmall() {
		p.link.plane.stepper.Hold()
		defer p.link.plane.stepper.Step()
	}
	p.link.plane.mu.Lock()
	defer p.link.plane.mu.Unlock()
	p.link.storingPages--
	p.link.changed.Broadcast()
	p.endPair(i, code)
	p.endIfFinished()
}

// abortPush ends the push soon: no further page is begun.
func (p *Push) abortPush(code effects.Code) {
	p.stopBatch(code)
	p.endIfFinished()
}

func (p *Push) endIfFinished() {
	if !p.finishOnce() {
		return
	}
	delete(p.link.pushes, p.number)
	plane := p.link.plane
	landing := plane.env.IDs.NextLanding()
	plane.landings[landing] = p
	p.link.landings++
	if complete := p.claim.Land(landing, p.whole); !complete && p.code == effects.OK {
		p.code = effects.Withdrawn // The grant was revoked after the last store and before the landing.
	}
}

// Confirm implements plane.Plane.
func (p *Plane) Confirm(landing effects.Landing, code effects.Code) {
	p.mu.Lock()
	defer p.mu.Unlock()
	push := p.landings[landing]
	if push == nil {
		return
	}
	delete(p.landings, landing)
	push.link.landings--
	push.link.pages -= len(push.pairs)
	if push.code != effects.OK {
		code = push.code // Some pages are missing, whatever the machine decided about the rest.
	}
	push.link.sendDone(push.number, code)
}
