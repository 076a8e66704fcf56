package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// ask is the arrival of a push request at the owner of the pages. It trusts no clock
// and no word of the peer: the grant decides.
func (w *world) ask(t *transfer) {
	n := t.remote.node
	if t.ended {
		return // Its link was cut before anything began.
	}
	if t.read {
		w.serve(t)
		return
	}
	code := n.grants[t.grant].claimable(t)
	if d, yes := w.strikes(plan.FaultPushRefused, t.name, 0); yes && code == effects.OK {
		code = refusals[d.Below(uint64(len(refusals)))]
	}
	w.journal.note(w.now, kindAsk, n.id, t.id, uint64(code), 0)
	if code != effects.OK {
		t.ended = true
		w.failed(t, code, draw.Hash(w.seed, draw.Ack, uint64(t.name), 0))
		return
	}
	n.grants[t.grant].claim(t, true)
	t.asked = true
	w.nextCopy(t, 0, 0)
}

func (w *world) nextCopy(t *transfer, pair, half int) {
	d := draw.Hash(w.seed, draw.Copy, uint64(t.name), uint64(2*pair+half))
	w.forNode(t.copier(), d.Heavy(w.plan.Device)+w.stalled(t, 2*pair+half),
		delivery{kind: kindCopy, a: t.id, b: uint64(pair), c: uint64(half)})
}

// copyHalf is the owner's copy thread: it holds the page under the grant, copies, and
// verifies before and after that the source still is what it was granted as.
func (w *world) copyHalf(t *transfer, i, half int) {
	if t.ended {
		return
	}
	n := t.remote.node
	g := n.grants[t.grant]
	p := t.pairs[i]
	if half == 0 {
		if t.stop != effects.OK {
			w.endPush(t)
			return
		}
		at := g.indexOf(p.Remote)
		switch {
		case g.revoking || at < 0 || g.closed[at] || p.Local.Length > g.pages[at].Length:
			t.stop = effects.Withdrawn
		case !t.unchanged(i):
			t.stop = effects.Stale
		case w.struck(plan.FaultDMA, t.name, uint64(i)):
			t.stop = effects.Faulted
		}
		if t.stop != effects.OK {
			w.endPush(t)
			return
		}
		g.holds++
		t.holding = g
	}
	w.journal.note(w.now, kindCopy, n.id, t.id, uint64(i), uint64(half))
	w.oracles.onStore(t, i, half)
	w.moveHalf(t, i, half)
	if half == 0 {
		w.nextCopy(t, i, 1)
		return
	}
	g.holds--
	t.holding = nil
	switch whole := t.unchanged(i); {
	case !whole && t.stop == effects.OK:
		t.stop = effects.Stale
	case whole && w.struck(plan.FaultHalfPage, t.name, uint64(i)):
		t.stop = effects.Faulted
	case whole:
		w.oracles.onPassed(t, i)
		t.landed = append(t.landed, g.pages[g.indexOf(p.Remote)])
		t.landed[len(t.landed)-1].Length = p.Local.Length
	}
	switch {
	case g.revoking && g.holds == 0:
		t.stop = effects.Withdrawn
		w.endPush(t)
		w.revokeEnds(n, g)
	case t.stop != effects.OK || i+1 == len(t.pairs):
		w.endPush(t)
	default:
		w.nextCopy(t, i+1, 0)
	}
}

// moveHalf moves what the page's length covers of one half.
func (w *world) moveHalf(t *transfer, i, half int) {
	p := t.pairs[i]
	covered := t.local.partsOf(p.Local.Length)
	src, dst := &t.local.pages[p.Local.Index], &t.remote.pages[p.Remote.Index]
	for part := half * parts / 2; part < min((half+1)*parts/2, covered); part++ {
		dst.stamps[part] = src.stamps[part]
	}
}

// endPush closes the grant for the pages that are whole, and says so.
func (w *world) endPush(t *transfer) {
	if t.ended {
		return
	}
	if t.holding != nil {
		t.holding.holds--
		t.holding = nil
	}
	t.ended = true
	n := t.remote.node
	g := n.grants[t.grant]
	g.claim(t, false)
	for _, p := range t.landed {
		for i := range g.pages {
			if g.pages[i].Index == p.Index {
				g.closed[i] = true
			}
		}
	}
	w.oracles.onLanded(t)
	t.landing = landingQueued
	w.inOrder(n, draw.Hash(w.seed, draw.Ack, uint64(t.name), 1).Heavy(w.plan.Net/8), delivery{kind: kindLanded, a: t.id})
}

func (g *grant) indexOf(r effects.RemotePage) int {
	for i, p := range g.pages {
		if p.Index == r.Index && p.Generation == r.Generation {
			return i
		}
	}
	return -1
}

// confirm lets the initiator know.
func (w *world) confirm(n *node, e *effects.Confirm) {
	if e.Landing == 0 || uint64(e.Landing) > uint64(len(w.transfers)) {
		w.fail("contract", "node %d confirms landing %d, which never was", n.it(), oracle.Transfer(e.Landing))
		return
	}
	t := w.transfers[e.Landing-1]
	if t.remote != n.pool || t.landing != landingReported {
		w.fail("contract", "node %d confirms landing %d, which it was not told of or has confirmed",
			n.it(), oracle.Transfer(e.Landing))
		return
	}
	t.landing = landingConfirmed
	code := e.Code
	if len(t.landed) < len(t.pairs) {
		code = t.stop // Whatever the machine made of the rest.
	}
	d := draw.Hash(w.seed, draw.Ack, uint64(t.name), 2)
	switch {
	case t.reported:
		w.settle(t, code, d.Heavy(w.plan.Net))
	case code == effects.OK:
		w.report(t, code, true, d.Heavy(w.plan.Net))
	default:
		w.failed(t, code, d)
	}
}
