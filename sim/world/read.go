package world

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// A read on a fenced plane works in one of two ways, which are drawn for each read. Either the reader maps the owner's
// memory and copies by itself: the reader compares the grant's permit and the page's generation before and after each
// page (M3). The owner's process takes no part in that and may be frozen. Or the owner sends the pages, and holds the
// grant while it sends each page.

// beginRead starts a read that has left its driver's queue: the reader looks at the pages, or requests the pages from
// the owner.
func (t *Transfer) beginRead(w *World) {
	d := draw.Hash(w.Seed, draw.Ask, uint64(t.Name), 0)
	if t.served = !d.Again().Permille(600); !t.served {
		t.serve(w)
		return
	}
	if t.Remote.served() {
		w.ForNode(t.Remote.Node, d.Heavy(w.Setting.Net)+w.held(t.Local.Node.ID, t.Remote.Node.ID),
			Delivery{Kind: KindAsk, A: t.ID})
	}
}

// serve begins to copy, unless the grant does not allow the read.
func (t *Transfer) serve(w *World) {
	code := t.readable()
	if d, yes := w.Strikes(plan.FaultPushRefused, t.Name, 0); yes && code == effects.OK {
		if code = refusal(contract.Transferring, d); code == effects.Mismatch { // A read may be shorter.
			code = effects.Refused
		}
	}
	w.Journal.Note(w.Now, KindAsk, t.copier().ID, t.ID, uint64(code), 0)
	if code != effects.OK {
		t.stop = code
		t.endRead(w)
		return
	}
	t.Asked = true
	t.nextCopy(w, 0, 0)
}

// strays reports whether a read names a buffer that does not belong to the target of its link.
func (t *Transfer) strays(w *World) bool {
	for _, p := range t.Pairs {
		if t.Read && w.Buffers[p.Remote.Buffer] != t.Remote {
			return true
		}
	}
	return false
}

// copier returns the node that runs the thread which moves the bytes of a transfer on a fenced plane.
func (t *Transfer) copier() *Node {
	if t.Read && !t.served {
		return t.Local.Node
	}
	return t.Remote.Node
}

// readable decides whether a read is admitted: all of its pages must be leased as stated.
func (t *Transfer) readable() effects.Code {
	g := t.Under
	switch {
	case g == nil || g.Gone || g.Revoking || g.Peer == (effects.Incarnation{}):
		return effects.Withdrawn
	case g.Peer != t.Initiator:
		return effects.Refused
	}
	for _, p := range t.Pairs {
		at := g.Place(p.Remote.Index)
		switch {
		case at < 0:
			return effects.Withdrawn
		case g.Pages[at].Generation != p.Remote.Generation:
			return effects.Stale
		case p.Local.Length > g.Pages[at].Length:
			return effects.TooLarge
		}
	}
	return effects.OK
}

// stands returns OK if a page that was read may be delivered. Otherwise the grant is revoked, or the page has another
// generation.
func (t *Transfer) stands(i int) effects.Code {
	p := t.Pairs[i].Remote
	switch {
	case t.Under.Revoking:
		return effects.Withdrawn
	case t.Remote.Pages[p.Index].Generation != p.Generation:
		return effects.Stale
	}
	return effects.OK
}

// readHalf moves half a page. readHalf verifies before and after the page that the page may be delivered.
func (t *Transfer) readHalf(w *World, i, half int) {
	if t.Ended {
		return
	}
	if half == 0 {
		if t.stop == effects.OK {
			t.stop = t.mayRead(w, i)
		}
		if t.stop != effects.OK {
			t.endRead(w)
			return
		}
		t.copying = true
		if t.served {
			t.Under.Holds++
			t.holding = t.Under
		}
	}
	w.Journal.Note(w.Now, KindCopy, t.copier().ID, t.ID, uint64(i), uint64(half))
	OnLoaded.Report(&w.Panel, oracle.Nobody, Loaded{t, i})
	t.fetchHalf(i, half)
	if half == 0 {
		t.nextCopy(w, i, 1)
		return
	}
	t.copying = false
	switch {
	case t.stop != effects.OK:
	case t.stands(i) != effects.OK:
		t.stop = t.stands(i)
	case w.Struck(plan.FaultHalfPage, t.Name, uint64(i)):
		t.stop = effects.Faulted
	default:
		OnReadPassed.Report(&w.Panel, oracle.Nobody, ReadPassed{t, i})
		t.stored++
	}
	if t.stop != effects.OK || i+1 == len(t.Pairs) {
		t.endRead(w)
		return
	}
	t.letHold(w)
	t.nextCopy(w, i+1, 0)
}

// mayRead returns OK if the read of a page may begin.
func (t *Transfer) mayRead(w *World, i int) effects.Code {
	switch {
	case w.Clock(t.Local.Node) > t.NotAfter:
		return effects.Expired
	case t.stands(i) != effects.OK:
		return t.stands(i)
	case w.Struck(plan.FaultDMA, t.Name, uint64(i)):
		return effects.Faulted
	}
	return effects.OK
}

// fetchHalf moves the part of a half that the page's length covers.
func (t *Transfer) fetchHalf(i, half int) {
	p := t.Pairs[i]
	src, dst := &t.Remote.Pages[p.Remote.Index], &t.Local.Pages[p.Local.Index]
	for part := half * Parts / 2; part < min((half+1)*Parts/2, t.Local.PartsOf(p.Local.Length)); part++ {
		dst.Stamps[part] = src.Stamps[part]
	}
}

// letHold releases the hold of a page, and completes a revocation that waited only for this hold (M3).
func (t *Transfer) letHold(w *World) {
	g := t.holding
	if g == nil {
		return
	}
	t.holding = nil
	if g.Holds--; g.Holds == 0 && g.Revoking && !g.Gone && t.Remote.Alive() {
		g.revokeEnds(w, t.Remote.Node)
	}
}

// endRead ends the copies of a read and reports the outcome.
func (t *Transfer) endRead(w *World) {
	if t.Ended {
		return
	}
	t.Ended, t.copying = true, false
	t.letHold(w)
	code := t.stop
	if t.stored == len(t.Pairs) {
		code = effects.OK
	}
	d := draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 1)
	switch {
	case t.Reported:
		t.settle(w, code, d.Heavy(w.Setting.Net/8))
	case code == effects.OK:
		t.report(w, code, true, d.Heavy(w.Setting.Net/8))
	default:
		t.failed(w, code, d)
	}
}

// stopRead ends a read on the initiator's side. A thread that is in the middle of a page finishes the page; until then
// the read is not settled.
func (t *Transfer) stopRead(w *World, d draw.Of, after effects.Duration) {
	switch {
	case !t.copying || t.served && !t.Remote.served():
		t.Ended, t.copying = true, false
		t.letHold(w)
		if d.Again().Permille(700) {
			t.report(w, t.stop, true, after)
			return
		}
		t.report(w, t.stop, false, after)
		t.settle(w, t.stop, after+d.Again().Again().Heavy(w.Setting.Device))
	default:
		t.report(w, t.stop, false, after)
	}
}
