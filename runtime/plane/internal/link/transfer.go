package link

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A Transfer is one batch that we push, or that we read: then it has a Read.
//
//   - queued: its frame has not left
//   - asked: it has; the peer stores pages, or sends them. A read that asks nobody never is
//   - ended: its permit is withdrawn and TransferDone was posted; if busy then, Settled follows
type Transfer struct {
	link     *Outgoing
	number   uint64 // never another's of this plane
	corr     effects.Corr
	grant    effects.GrantID
	pairs    []effects.Pair
	notAfter effects.Time
	permits  *plane.Permits // where its permit is, in slot; nil if it has none
	slot     uint32
	read     *Read // nil: we push

	// Under the plane's mutex.
	asked, ended bool
	busy         int          // accesses of this process to our pages in progress
	owed         bool         // Settled follows when busy is zero
	code         effects.Code // how it ended
}

// Number names the transfer.
func (t *Transfer) Number() uint64 { return t.number }

// Pairs are the pages to move. They are not to be changed.
func (t *Transfer) Pairs() []effects.Pair { return t.pairs }

// Transfer implements plane.Plane.
func (p *Plane) Transfer(e *effects.Transfer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.links[e.Link]
	if code := p.admit(o, e); code != effects.OK {
		p.post(&effects.TransferDone{Corr: e.Corr, Code: code, Settled: true, At: plane.Now()})
		return
	}
	p.last++
	o.last = p.last
	t := &Transfer{link: o, number: p.last, corr: e.Corr, grant: e.Grant, pairs: slices.Clone(e.Pairs), notAfter: e.NotAfter}
	o.transfers[t.number], p.transfers[t.corr] = t, t
	if e.Read {
		o.load(t)
	} else {
		o.push(t)
	}
}

// push asks the peer to store our pages.
func (o *Outgoing) push(t *Transfer) {
	if permits := o.plane.medium.Permits(); permits != nil {
		slot, ok := permits.Issue(t.number)
		if !ok {
			panic(fmt.Sprintf("BUG: no permit is left for one of %d transfers", len(o.plane.transfers)))
		}
		t.permits, t.slot = permits, slot
	}
	t.send(KindPush, func() { o.sender.Send(t) })
}

// send queues the frame that asks for the transfer; after is called when it has left.
func (t *Transfer) send(kind Kind, after func()) {
	frame := appendAsk(nil, kind, Ask{Transfer: t.number, Slot: t.slot, Grant: t.grant, Pairs: t.pairs})
	if !t.link.out.put(item{frame: frame, before: t.ask, after: after}) {
		t.finish(effects.PeerLost)
	}
}

func (p *Plane) admit(o *Outgoing, e *effects.Transfer) effects.Code {
	switch {
	case p.closed:
		return effects.Closed
	case o == nil || o.lost || o.dropped:
		return effects.PeerLost
	case e.Peer != o.welcome.From:
		return effects.Stale
	case len(p.transfers) >= p.env.Bounds.Transfers:
		return effects.TooMany
	case len(e.Pairs) > p.env.Bounds.PagesPerBatch:
		return effects.TooLarge
	case len(e.Pairs) == 0:
		return effects.Invalid
	}
	for _, pair := range e.Pairs {
		switch {
		case pair.Remote.Buffer != o.welcome.Buffer.ID:
			return effects.Stale
		case pair.Remote.Index >= o.welcome.Buffer.Pages, !p.env.Pool.Has(pair.Local):
			return effects.Invalid
		case uint64(pair.Local.Length) > o.welcome.Buffer.PageBytes:
			return effects.TooLarge
		}
	}
	if plane.Now() > e.NotAfter {
		return effects.Expired
	}
	return effects.OK
}

// ask is the last look before the frame leaves.
func (t *Transfer) ask() bool {
	t.link.plane.mu.Lock()
	defer t.link.plane.mu.Unlock()
	if !t.ended && plane.Now() > t.notAfter {
		t.finish(effects.Expired)
	}
	t.asked = !t.ended
	return t.asked
}

// Begin is the last look before this process reads a page of ours, or stores into one; false says that the rest of the
// transfer is not wanted. After true, End follows.
func (t *Transfer) Begin() bool {
	t.link.plane.mu.Lock()
	defer t.link.plane.mu.Unlock()
	if !t.ended && plane.Now() > t.notAfter {
		t.stop(effects.Expired)
	}
	if t.ended || t.link.ending {
		return false
	}
	t.busy++
	t.link.busy++
	return true
}

// End says that nothing is done with the page any more.
func (t *Transfer) End() {
	p := t.link.plane
	p.mu.Lock()
	defer p.mu.Unlock()
	t.link.busy--
	t.link.left.Broadcast()
	if t.busy--; t.busy == 0 && t.owed {
		t.owed = false
		p.post(&effects.Settled{Corr: t.corr, Code: t.code})
	}
}

// Cancel implements plane.Plane.
func (p *Plane) Cancel(corr effects.Corr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.transfers[corr]; t != nil {
		t.stop(effects.Cancelled)
	}
}

// stop ends the transfer on our side and tells the peer, which otherwise finds out by its revocation.
func (t *Transfer) stop(code effects.Code) {
	if t.ended {
		return
	}
	t.finish(code)
	if t.asked && !t.link.out.put(item{frame: appendCancel(nil, t.number)}) {
		t.link.Fail()
	}
}

// finish posts TransferDone, once. With the plane's mutex held.
//
// A target that copies by itself is stopped by the permit's withdrawal, wherever it is just then; so it is
// settled at once, even if that target is slow, frozen or out of reach. Busy counts this process alone.
//
// OK is settled whatever busy says: the target has stored every byte, so a stream that has not come
// back from its last write reads our page no more. In a read that ends so, nothing is busy.
func (t *Transfer) finish(code effects.Code) {
	if t.ended {
		return
	}
	t.ended, t.code = true, code
	delete(t.link.transfers, t.number)
	delete(t.link.plane.transfers, t.corr)
	if t.permits != nil {
		t.permits.Withdraw(t.slot)
	}
	settled := t.busy == 0 || code == effects.OK
	t.owed = !settled
	t.link.plane.post(&effects.TransferDone{Corr: t.corr, Code: code, Settled: settled, At: plane.Now()})
}
