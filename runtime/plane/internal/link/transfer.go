package link

import (
	"fmt"
	"iter"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A Transfer is one batch that we push or read. If it is a read, it has a Read. Its states:
//
//   - queued: its frame has not been sent
//   - requested: the frame has been sent; the peer stores pages or sends them. A read without a request to the peer
//     never is.
//   - confirmed: of a push whose pages we send, the peer answered OK while a thread of ours was still accessing a
//     page
//   - ended: its permit is withdrawn and TransferDone was posted; if accesses were in progress then, Settled follows
//
// Whether a transfer is settled follows from what our own threads do. No message of the peer has a part in it.
type Transfer struct {
	link     *Outgoing
	number   uint64 // never used for another transfer of this plane
	corr     effects.Corr
	grant    effects.GrantID
	pairs    []effects.Pair
	gather   effects.Gather // of a push: the parts that each page is gathered from
	notAfter effects.Time
	permits  *plane.Permits // where its permit is, in slot; nil if it has none
	slot     uint32
	read     *Read // nil if this is a push

	// The fields below are guarded by the plane's mutex.
	asked, told, ended bool
	unbegun, unsent    int          // pages of a push that our threads have not begun to send, or have not sent whole
	busy               int          // accesses of this process to our pages in progress
	owed               bool         // Settled must be posted when accesses becomes zero
	code               effects.Code // how the transfer ended
}

// Number returns the number of the transfer.
func (t *Transfer) Number() uint64 { return t.number }

// Pairs returns the pages to move. They must not be changed.
func (t *Transfer) Pairs() []effects.Pair { return t.pairs }

// Pieces returns the parts of which the peer's page of pair i consists here, in the order of the page.
func (t *Transfer) Pieces(i int) iter.Seq[effects.Piece] { return t.gather.Pieces(i, &t.pairs[i]) }

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
	t := &Transfer{link: o, number: p.last, corr: e.Corr, grant: e.Grant, pairs: slices.Clone(e.Pairs),
		gather: e.Gather, notAfter: e.NotAfter}
	t.gather.Pages = slices.Clone(e.Gather.Pages)
	o.transfers[t.number], p.transfers[t.corr] = t, t
	if e.Read {
		o.load(t)
	} else {
		o.push(t)
	}
}

// push requests that the peer store our pages.
func (o *Outgoing) push(t *Transfer) {
	if permits := o.plane.medium.Permits(); permits != nil {
		slot, ok := permits.Issue(t.number)
		if !ok {
			panic(fmt.Sprintf("BUG: no permit is left for one of %d transfers", len(o.plane.transfers)))
		}
		t.permits, t.slot = permits, slot
	} else {
		t.unbegun, t.unsent = len(t.pairs), len(t.pairs)
	}
	kind := KindPush
	if t.gather.Layers > 0 {
		kind = KindGather
	}
	t.send(kind, func() { o.sender.Send(t) })
}

// sendRequest sends the frame that requests the transfer, or queues it. The function after is called when the frame
// has been sent. The caller has checked the transfer's deadline under the same hold of the plane's mutex.
func (t *Transfer) send(kind Kind, after func()) {
	frame := appendAsk(nil, kind, Ask{Transfer: t.number, Slot: t.slot, Grant: t.grant, Pairs: t.pairs,
		Gather: t.gather})
	how, ok := t.link.out.put(item{frame: frame, before: t.ask, after: after})
	if !ok {
		t.finish(effects.PeerLost)
		return
	}
	t.asked = how != queued
	if how == gone && after != nil {
		after()
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
	case max(len(e.Pairs), len(e.Gather.Pages)) > p.env.Bounds.PagesPerBatch:
		return effects.TooLarge
	case len(e.Pairs) == 0, !e.Gather.Fits(e.Pairs), e.Gather.Layers > 0 && e.Read:
		return effects.Invalid
	}
	for _, page := range e.Gather.Pages {
		if !p.env.Pool.Has(page) {
			return effects.Invalid
		}
	}
	for _, pair := range e.Pairs {
		switch {
		case pair.Remote.Buffer != o.welcome.Buffer.ID:
			return effects.Stale
		case pair.Remote.Index >= o.welcome.Buffer.Pages, e.Gather.Layers == 0 && !p.env.Pool.Has(pair.Local):
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

// checkRequest is the last check before the frame is sent. It reports whether the transfer is still wanted.
func (t *Transfer) ask() bool {
	t.link.plane.mu.Lock()
	defer t.link.plane.mu.Unlock()
	if !t.ended && plane.Now() > t.notAfter {
		t.finish(effects.Expired)
	}
	t.asked = !t.ended
	return t.asked
}

// Begin is the last check before this process reads so many consecutive pages of ours, or stores into them. It
// returns false if the rest of the transfer is not wanted. After true the caller must call End or Sent.
func (t *Transfer) Begin(pages int) bool {
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
	if t.read == nil {
		t.unbegun -= pages
	}
	return true
}

// End records that the access to the pages has ended.
func (t *Transfer) End() {
	t.link.plane.mu.Lock()
	defer t.link.plane.mu.Unlock()
	t.leave()
}

// Sent is like End, for pages of a push that have been sent to their last byte.
func (t *Transfer) Sent(pages int) {
	t.link.plane.mu.Lock()
	defer t.link.plane.mu.Unlock()
	t.unsent -= pages
	t.leave()
	t.maybeEnd()
}

func (t *Transfer) leave() {
	t.link.busy--
	t.link.left.Broadcast()
	if t.busy--; t.busy == 0 && t.owed {
		t.owed = false
		t.link.plane.post(&effects.Settled{Corr: t.corr, Code: t.code})
	}
}

// handleDone processes the peer's done message for a transfer. An honest peer sends it only after it was requested,
// and confirms a push only when it has every page: then no page is left to begin, and a thread that is still
// accessing one is about to end its access.
func (t *Transfer) hear(code effects.Code) error {
	switch {
	case !t.asked:
		return fmt.Errorf("%w: done of transfer %d, which was not requested yet", ErrMalformed, t.number)
	case code != effects.OK:
		t.finish(code)
	case t.unbegun > 0:
		return fmt.Errorf("%w: transfer %d is said to be whole, and %d of its %d pages have not been sent",
			ErrMalformed, t.number, t.unbegun, len(t.pairs))
	default:
		t.told = true
		t.maybeEnd()
	}
	return nil
}

func (t *Transfer) maybeEnd() {
	if t.told && t.unsent == 0 && t.busy == 0 {
		t.finish(effects.OK)
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

// stop ends the transfer on our side and notifies the peer, which would otherwise find out by the withdrawn permit.
func (t *Transfer) stop(code effects.Code) {
	if t.ended {
		return
	}
	t.finish(code)
	if t.asked {
		if _, ok := t.link.out.put(item{frame: appendCancel(nil, t.number)}); !ok {
			t.link.Fail()
		}
	}
}

// finish posts TransferDone, once. The caller holds the plane's mutex.
//
// The withdrawal of the permit stops a target that copies by itself, wherever it is in its copies. So the transfer is
// settled at once, even if that target is slow, frozen or unreachable (M3). Accesses counts this process alone.
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
	settled := t.busy == 0
	t.owed = !settled
	t.link.plane.post(&effects.TransferDone{Corr: t.corr, Code: code, Settled: settled, At: plane.Now()})
}
