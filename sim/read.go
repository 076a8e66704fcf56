package sim

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// A read on a fenced plane. Either the reader maps the owner's memory and copies by itself,
// looking at the grant's permit and at the page's generation before and after each page: the
// owner's process takes no part and may be frozen. Or the owner sends the pages, each inside
// a hold of the grant. Which of the two it is, is drawn for each.

// beginRead lets a read that has left its driver's queue look at the pages, or be asked for.
func (w *world) beginRead(t *transfer) {
	d := draw.Hash(w.seed, draw.Ask, uint64(t.name), 0)
	if t.served = !d.Again().Permille(600); !t.served {
		w.serve(t)
		return
	}
	if t.remote.served() {
		w.forNode(t.remote.node, d.Heavy(w.plan.Net)+w.held(t.local.node.id, t.remote.node.id),
			delivery{kind: kindAsk, a: t.id})
	}
}

// serve begins to copy, unless the grant does not allow what is wanted.
func (w *world) serve(t *transfer) {
	code := t.readable()
	if d, yes := w.strikes(plan.FaultPushRefused, t.name, 0); yes && code == effects.OK {
		if code = refusal(contract.Transferring, d); code == effects.Mismatch { // One may read less than was granted.
			code = effects.Refused
		}
	}
	w.journal.note(w.now, kindAsk, t.copier().id, t.id, uint64(code), 0)
	if code != effects.OK {
		t.stop = code
		w.endRead(t)
		return
	}
	t.asked = true
	w.nextCopy(t, 0, 0)
}

// strays says whether a read is of a buffer that its link does not lead to.
func (t *transfer) strays(w *world) bool {
	for _, p := range t.pairs {
		if t.read && w.oracles.truth.buffers[p.Remote.Buffer] != t.remote {
			return true
		}
	}
	return false
}

// copier is the node whose thread moves the bytes of a transfer on a fenced plane.
func (t *transfer) copier() *node {
	if t.read && !t.served {
		return t.local.node
	}
	return t.remote.node
}

// readable says whether a read is let in: all of its pages must be lent to it as it says.
func (t *transfer) readable() effects.Code {
	g := t.under
	switch {
	case g == nil || g.gone || g.revoking || g.peer == (effects.Incarnation{}):
		return effects.Withdrawn
	case g.peer != t.initiator:
		return effects.Refused
	}
	for _, p := range t.pairs {
		at := g.place(p.Remote.Index)
		switch {
		case at < 0:
			return effects.Withdrawn
		case g.pages[at].Generation != p.Remote.Generation:
			return effects.Stale
		case p.Local.Length > g.pages[at].Length:
			return effects.TooLarge
		}
	}
	return effects.OK
}

// stands says what forbids to deliver a page that is read: its grant is over, or it lives
// another life.
func (t *transfer) stands(i int) effects.Code {
	p := t.pairs[i].Remote
	switch {
	case t.under.revoking:
		return effects.Withdrawn
	case t.remote.pages[p.Index].generation != p.Generation:
		return effects.Stale
	}
	return effects.OK
}

// readHalf moves half a page. Whether it may be delivered is looked at before and after.
func (w *world) readHalf(t *transfer, i, half int) {
	if t.ended {
		return
	}
	if half == 0 {
		if t.stop == effects.OK {
			t.stop = w.mayRead(t, i)
		}
		if t.stop != effects.OK {
			w.endRead(t)
			return
		}
		t.copying = true
		if t.served {
			t.under.holds++
			t.holding = t.under
		}
	}
	w.journal.note(w.now, kindCopy, t.copier().id, t.id, uint64(i), uint64(half))
	w.oracles.onLoad(t, i)
	t.fetchHalf(i, half)
	if half == 0 {
		w.nextCopy(t, i, 1)
		return
	}
	t.copying = false
	switch {
	case t.stop != effects.OK:
	case t.stands(i) != effects.OK:
		t.stop = t.stands(i)
	case w.struck(plan.FaultHalfPage, t.name, uint64(i)):
		t.stop = effects.Faulted
	default:
		w.oracles.onReadPassed(t, i)
		t.stored++
	}
	if t.stop != effects.OK || i+1 == len(t.pairs) {
		w.endRead(t)
		return
	}
	w.letHold(t)
	w.nextCopy(t, i+1, 0)
}

// mayRead is what is looked at before a page.
func (w *world) mayRead(t *transfer, i int) effects.Code {
	switch {
	case w.clock(t.local.node) > t.notAfter:
		return effects.Expired
	case t.stands(i) != effects.OK:
		return t.stands(i)
	case w.struck(plan.FaultDMA, t.name, uint64(i)):
		return effects.Faulted
	}
	return effects.OK
}

// fetchHalf moves what the page's length covers of one half.
func (t *transfer) fetchHalf(i, half int) {
	p := t.pairs[i]
	src, dst := &t.remote.pages[p.Remote.Index], &t.local.pages[p.Local.Index]
	for part := half * parts / 2; part < min((half+1)*parts/2, t.local.partsOf(p.Local.Length)); part++ {
		dst.stamps[part] = src.stamps[part]
	}
}

// letHold ends the hold of a page, and a revocation that only waited for it.
func (w *world) letHold(t *transfer) {
	g := t.holding
	if g == nil {
		return
	}
	t.holding = nil
	if g.holds--; g.holds == 0 && g.revoking && !g.gone && t.remote.alive() {
		w.revokeEnds(t.remote.node, g)
	}
}

// endRead is the end of the copies.
func (w *world) endRead(t *transfer) {
	if t.ended {
		return
	}
	t.ended, t.copying = true, false
	w.letHold(t)
	code := t.stop
	if t.stored == len(t.pairs) {
		code = effects.OK
	}
	d := draw.Hash(w.seed, draw.Ack, uint64(t.name), 1)
	switch {
	case t.reported:
		w.settle(t, code, d.Heavy(w.plan.Net/8))
	case code == effects.OK:
		w.report(t, code, true, d.Heavy(w.plan.Net/8))
	default:
		w.failed(t, code, d)
	}
}

// stopRead ends a read at its initiator's side. A thread that is in the middle of a page goes
// on to its end: until then the read is not settled.
func (w *world) stopRead(t *transfer, d draw.Of, after effects.Duration) {
	switch {
	case !t.copying || t.served && !t.remote.served():
		t.ended, t.copying = true, false
		w.letHold(t)
		if d.Again().Permille(700) {
			w.report(t, t.stop, true, after)
			return
		}
		w.report(t, t.stop, false, after)
		w.settle(t, t.stop, after+d.Again().Again().Heavy(w.plan.Device))
	default:
		w.report(t, t.stop, false, after)
	}
}
