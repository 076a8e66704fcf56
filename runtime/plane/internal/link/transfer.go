package link

import (
	"fmt"
	"iter"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/plane"
)

// A Transfer is a batch that we push or read. A transfer that reads has a Read. The states are:
//
//   - queued: the frame of the transfer has not been sent
//   - requested: the frame has been sent; the peer stores pages or sends pages. A read without a request to the peer
//     is never in this state.
//   - confirmed: only of a push of which we send the pages; the peer answered OK while a thread of ours was still
//     accessing a page
//   - ended: the permit is withdrawn and TransferDone was posted; if accesses were in progress then, Settled follows
//
// Whether a transfer is settled depends on our own threads alone, and on no message of the peer (M3, M8).
type Transfer struct {
	link     *OutgoingLink
	number   uint64 // never used for another transfer of this plane
	corr     effects.Corr
	grant    effects.GrantID
	pairs    []effects.Pair
	gather   effects.Gather // of a push: the parts that each page is gathered from
	notAfter effects.Time
	permits  *plane.Permits // the permits that include the transfer's permit, in slot; nil without a permit
	slot     uint32
	read     *Read // nil if this is a push

	// The fields below are guarded by the plane's mutex.
	requested, confirmed, ended bool
	unbegunPages, unsentPages   int          // pages of a push not begun to be sent, or not sent whole
	accesses                    int          // accesses of this process to our pages in progress
	owesSettled                 bool         // Settled must be posted when accesses becomes zero
	code                        effects.Code // how the transfer ended
}

// Number returns the number of the transfer.
func (t *Transfer) Number() uint64 { return t.number }

// Pairs returns the pages to move. The slice must not be changed.
func (t *Transfer) Pairs() []effects.Pair { return t.pairs }

// Pieces returns our parts of which the peer's page of pair i consists, in the order of the page.
func (t *Transfer) Pieces(i int) iter.Seq[effects.Piece] { return t.gather.Pieces(i, &t.pairs[i]) }

// Transfer implements plane.Plane.
func (p *Plane) Transfer(e *effects.Transfer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.links[e.Link]
	if code := p.checkTransfer(o, e); code != effects.OK {
		p.postEvent(&effects.TransferDone{Corr: e.Corr, Code: code, Settled: true, At: plane.Now()})
		return
	}
	p.lastTransfer++
	o.lastTransfer = p.lastTransfer
	t := &Transfer{link: o, number: p.lastTransfer, corr: e.Corr, grant: e.Grant, pairs: slices.Clone(e.Pairs),
		gather: e.Gather, notAfter: e.NotAfter}
	t.gather.Pages = slices.Clone(e.Gather.Pages)
	o.transfers[t.number], p.transfers[t.corr] = t, t
	if e.Read {
		o.startRead(t)
	} else {
		o.startPush(t)
	}
}

// startPush requests that the peer store our pages.
func (o *OutgoingLink) startPush(t *Transfer) {
	if permits := o.plane.medium.Permits(); permits != nil {
		slot, ok := permits.Issue(t.number)
		if !ok {
			panic(fmt.Sprintf("BUG: all permits are in use, with %d transfers in flight", len(o.plane.transfers)))
		}
		t.permits, t.slot = permits, slot
	} else {
		t.unbegunPages, t.unsentPages = len(t.pairs), len(t.pairs)
	}
	kind := KindPush
	if t.gather.Layers > 0 {
		kind = KindGather
	}
	t.sendRequest(kind, func() { o.sender.Send(t) })
}

// sendRequest sends or queues the frame that requests the transfer. The function onSent is called when the frame has
// been sent. The caller has checked the transfer's deadline under the same hold of the plane's mutex.
func (t *Transfer) sendRequest(kind Kind, onSent func()) {
	frame := appendRequest(nil, kind, TransferRequest{Transfer: t.number, Slot: t.slot, Grant: t.grant, Pairs: t.pairs,
		Gather: t.gather})
	how, ok := t.link.outbox.putFrame(queuedFrame{frame: frame, shouldWrite: t.checkRequest, onWritten: onSent})
	if !ok {
		t.finishTransfer(effects.PeerLost)
		return
	}
	t.requested = how != frameQueued
	if how == frameSent && onSent != nil {
		onSent()
	}
}

func (p *Plane) checkTransfer(o *OutgoingLink, e *effects.Transfer) effects.Code {
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

// checkRequest is the last check before the frame is sent, and reports whether the transfer is still wanted.
func (t *Transfer) checkRequest() bool {
	t.link.plane.mu.Lock()
	defer t.link.plane.mu.Unlock()
	if !t.ended && plane.Now() > t.notAfter {
		t.finishTransfer(effects.Expired)
	}
	t.requested = !t.ended
	return t.requested
}

// BeginAccess is the last check before this process reads, or stores into, so many consecutive pages of ours. The
// result is false if the rest of the transfer is not wanted. After true the caller must call EndAccess or EndSend.
func (t *Transfer) BeginAccess(pages int) bool {
	t.link.plane.mu.Lock()
	defer t.link.plane.mu.Unlock()
	if !t.ended && plane.Now() > t.notAfter {
		t.stopTransfer(effects.Expired)
	}
	if t.ended || t.link.ending {
		return false
	}
	t.accesses++
	t.link.accesses++
	if t.read == nil {
		t.unbegunPages -= pages
	}
	return true
}

// EndAccess records that the access to the pages has ended.
func (t *Transfer) EndAccess() {
	t.link.plane.mu.Lock()
	defer t.link.plane.mu.Unlock()
	t.finishAccess()
}

// EndSend ends an access like EndAccess, to pages of a push that have been sent to their last byte.
func (t *Transfer) EndSend(pages int) {
	t.link.plane.mu.Lock()
	defer t.link.plane.mu.Unlock()
	t.unsentPages -= pages
	t.finishAccess()
	t.endIfComplete()
}

func (t *Transfer) finishAccess() {
	t.link.accesses--
	t.link.changed.Broadcast()
	if t.accesses--; t.accesses == 0 && t.owesSettled {
		t.owesSettled = false
		t.link.plane.postEvent(&effects.Settled{Corr: t.corr, Code: t.code})
	}
}

// handleDone processes the peer's done message for a transfer. An honest peer sends the message only after the
// transfer was requested, and confirms a push only when it has every page: then no page is left to begin, and a thread
// that is still accessing a page is about to end that access.
func (t *Transfer) handleDone(code effects.Code) error {
	switch {
	case !t.requested:
		return fmt.Errorf("%w: done message for transfer %d, which was not requested yet", ErrMalformed, t.number)
	case code != effects.OK:
		t.finishTransfer(code)
	case t.unbegunPages > 0:
		return fmt.Errorf("%w: the peer confirms transfer %d, and %d of its %d pages have not been sent",
			ErrMalformed, t.number, t.unbegunPages, len(t.pairs))
	default:
		t.confirmed = true
		t.endIfComplete()
	}
	return nil
}

func (t *Transfer) endIfComplete() {
	if t.confirmed && t.unsentPages == 0 && t.accesses == 0 {
		t.finishTransfer(effects.OK)
	}
}

// Cancel implements plane.Plane.
func (p *Plane) Cancel(corr effects.Corr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.transfers[corr]; t != nil {
		t.stopTransfer(effects.Cancelled)
	}
}

// stopTransfer ends the transfer on our side and notifies the peer, which would otherwise find out by the withdrawn
// permit.
func (t *Transfer) stopTransfer(code effects.Code) {
	if t.ended {
		return
	}
	t.finishTransfer(code)
	if t.requested {
		if _, ok := t.link.outbox.putFrame(queuedFrame{frame: appendCancel(nil, t.number)}); !ok {
			t.link.Fail()
		}
	}
}

// finishTransfer posts TransferDone, once. The caller holds the plane's mutex.
//
// The withdrawal of the permit stops the copies of a target's process, at any point of a copy. So the transfer is
// settled at once, even if that target is slow, frozen or unreachable (M3). Accesses counts this process alone.
func (t *Transfer) finishTransfer(code effects.Code) {
	if t.ended {
		return
	}
	t.ended, t.code = true, code
	delete(t.link.transfers, t.number)
	delete(t.link.plane.transfers, t.corr)
	if t.permits != nil {
		t.permits.Withdraw(t.slot)
	}
	settled := t.accesses == 0
	t.owesSettled = !settled
	t.link.plane.postEvent(&effects.TransferDone{Corr: t.corr, Code: code, Settled: settled, At: plane.Now()})
}
