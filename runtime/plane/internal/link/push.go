package link

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A Push is one batch that a peer pushes to us and the pool let in.
//
//   - open: pages are stored
//   - stopped: after the first failure or a cancel; no page is begun
//   - ended: no page is being stored; Landed was posted, Confirm is awaited
type Push struct {
	link   *Incoming
	number uint64
	slot   uint32         // of the peer's permit
	pairs  []effects.Pair // Local is the peer's page, Remote ours
	claim  *plane.Claim

	// Under the plane's mutex.
	begun, whole   []bool // for each pair
	left           int    // pairs that are not whole
	storing        int    // pairs being stored
	stopped, ended bool
	code           effects.Code // why it stopped
}

// Pairs are the pages to store: Local at the peer, Remote here. They are not to be changed.
func (p *Push) Pairs() []effects.Pair { return p.pairs }

// Permit names the peer's leave to copy: where it is, and the transfer's number.
func (p *Push) Permit() (slot uint32, number uint64) { return p.slot, p.number }

// Claim is the leave to store. It is to be used between Begin and End only.
func (p *Push) Claim() *plane.Claim { return p.claim }

// push lets in what a peer asks for, or answers why not.
func (in *Incoming) push(a Ask) error {
	p := in.plane
	p.mu.Lock()
	if a.Transfer <= in.last {
		p.mu.Unlock()
		return fmt.Errorf("%w: push %d after %d; numbers only grow", ErrMalformed, a.Transfer, in.last)
	}
	in.last = a.Transfer
	in.moved.Broadcast()
	push, code := in.admit(a)
	if code == effects.OK {
		in.pushes[a.Transfer] = push
	} else {
		in.answer(a.Transfer, code)
	}
	p.mu.Unlock()
	if code == effects.OK {
		in.receiver.Receive(push)
	}
	return nil
}

func (in *Incoming) admit(a Ask) (*Push, effects.Code) {
	if len(in.pushes) >= in.plane.env.Bounds.Transfers {
		return nil, effects.TooMany
	}
	if !in.receiver.Permits(a.Slot) {
		return nil, effects.Invalid
	}
	pool := in.plane.env.Pool
	pages := make([]effects.Page, len(a.Pairs))
	for i, pair := range a.Pairs {
		from := in.hello.Buffer
		if pair.Local.Index >= from.Pages || uint64(pair.Local.Length) > from.PageBytes {
			return nil, effects.Invalid
		}
		pages[i] = effects.Page{Pool: pool.ID(), Index: pair.Remote.Index, Generation: pair.Remote.Generation, Length: pair.Local.Length}
	}
	claim, code := pool.Claim(in.hello.From, a.Grant, pages)
	if code != effects.OK {
		return nil, code
	}
	n := len(a.Pairs)
	return &Push{link: in, number: a.Transfer, slot: a.Slot, pairs: a.Pairs, claim: claim, begun: make([]bool, n), whole: make([]bool, n), left: n}, effects.OK
}

// Begin starts to store pair i; false says that it is not wanted. After true, End follows.
func (p *Push) Begin(i int) bool {
	p.link.plane.mu.Lock()
	defer p.link.plane.mu.Unlock()
	if p.stopped || p.ended || p.begun[i] {
		return false
	}
	p.begun[i] = true
	p.storing++
	p.link.storing++
	return true
}

// End says that pair i is not being stored any more: whole if the code is OK, else the push stops.
func (p *Push) End(i int, code effects.Code) {
	p.link.plane.mu.Lock()
	defer p.link.plane.mu.Unlock()
	p.storing--
	p.link.storing--
	p.link.moved.Broadcast()
	if code == effects.OK {
		p.whole[i] = true
		p.left--
		p.maybeEnd()
		return
	}
	p.stop(code)
}

// stop begins no further page. The first reason counts.
func (p *Push) stop(code effects.Code) {
	if !p.stopped {
		p.stopped, p.code = true, code
	}
	p.maybeEnd()
}

func (p *Push) maybeEnd() {
	if p.ended || p.storing > 0 || p.left > 0 && !p.stopped {
		return
	}
	p.ended = true
	delete(p.link.pushes, p.number)
	plane := p.link.plane
	landing := plane.env.IDs.NextLanding()
	plane.landings[landing] = p
	if complete := p.claim.Land(landing, p.whole); !complete && p.code == effects.OK {
		p.code = effects.Withdrawn // Revoked after the last store, before the landing.
	}
}

func (in *Incoming) cancel(number uint64) {
	in.plane.mu.Lock()
	defer in.plane.mu.Unlock()
	if p := in.pushes[number]; p != nil {
		p.stop(effects.Cancelled)
	}
}

func (in *Incoming) answer(number uint64, code effects.Code) {
	if !in.lost && !in.out.put(item{frame: appendDone(nil, number, code)}) {
		in.Fail()
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
	if push.code != effects.OK {
		code = push.code // Not everything is here, whatever the machine made of the rest.
	}
	push.link.answer(push.number, code)
}
