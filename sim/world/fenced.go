package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// ask handles the arrival of a transfer request at the owner of the pages. The owner trusts neither a clock nor the
// peer: only the grant decides (M3).
func (t *Transfer) ask(w *World) {
	n := t.Remote.Node
	if t.Ended {
		return // The link was cut before anything began.
	}
	if t.Read {
		t.serve(w)
		return
	}
	code := n.Grants[t.Grant].claimable(t)
	if d, yes := w.Strikes(plan.FaultPushRefused, t.Name, 0); yes && code == effects.OK {
		code = refusals[d.Below(uint64(len(refusals)))]
	}
	w.Journal.Note(w.Now, KindAsk, n.ID, t.ID, uint64(code), 0)
	if code != effects.OK {
		t.Ended = true
		t.failed(w, code, draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 0))
		return
	}
	n.Grants[t.Grant].claim(t, true)
	t.Asked = true
	t.nextCopy(w, 0, 0)
}

// nextCopy schedules the copy of half a page.
func (t *Transfer) nextCopy(w *World, pair, half int) {
	d := draw.Hash(w.Seed, draw.Copy, uint64(t.Name), uint64(2*pair+half))
	w.ForNode(t.copier(), d.Heavy(w.Setting.Device)+t.stalled(w, 2*pair+half),
		Delivery{Kind: KindCopy, A: t.ID, B: uint64(pair), C: uint64(half)})
}

// copyHalf is a step of the owner's copy thread. The thread holds the page under the grant, copies, and verifies before
// and after the copy that the source is still the announced page (M3).
func (t *Transfer) copyHalf(w *World, i, half int) {
	if t.Ended {
		return
	}
	n := t.Remote.Node
	g := n.Grants[t.Grant]
	p := t.Pairs[i]
	if half == 0 {
		if t.stop != effects.OK {
			t.endPush(w)
			return
		}
		at := g.indexOf(p.Remote)
		switch {
		case g.Revoking || at < 0 || g.closed[at] || p.Local.Length > g.Pages[at].Length:
			t.stop = effects.Withdrawn
		case !t.unchanged(i):
			t.stop = effects.Stale
		case w.Struck(plan.FaultDMA, t.Name, uint64(i)):
			t.stop = effects.Faulted
		}
		if t.stop != effects.OK {
			t.endPush(w)
			return
		}
		g.Holds++
		t.holding = g
	}
	w.Journal.Note(w.Now, KindCopy, n.ID, t.ID, uint64(i), uint64(half))
	OnStored.Report(&w.Panel, oracle.Nobody, Stored{t, i, half})
	t.moveHalf(w, i, half)
	if half == 0 {
		t.nextCopy(w, i, 1)
		return
	}
	g.Holds--
	t.holding = nil
	switch whole := t.unchanged(i); {
	case !whole && t.stop == effects.OK:
		t.stop = effects.Stale
	case whole && w.Struck(plan.FaultHalfPage, t.Name, uint64(i)):
		t.stop = effects.Faulted
	case whole:
		OnPassed.Report(&w.Panel, oracle.Nobody, Passed{t, i})
		t.Landed = append(t.Landed, g.Pages[g.indexOf(p.Remote)])
		t.Landed[len(t.Landed)-1].Length = p.Local.Length
	}
	switch {
	case g.Revoking && g.Holds == 0:
		t.stop = effects.Withdrawn
		t.endPush(w)
		g.revokeEnds(w, n)
	case t.stop != effects.OK || i+1 == len(t.Pairs):
		t.endPush(w)
	default:
		t.nextCopy(w, i+1, 0)
	}
}

// moveHalf moves the part of a half that the page's length covers.
func (t *Transfer) moveHalf(w *World, i, half int) {
	p := t.Pairs[i]
	if t.Gather.Layers > 0 {
		t.gatherHalf(i, half)
		return
	}
	covered := t.Local.PartsOf(p.Local.Length)
	src, dst := &t.Local.Pages[p.Local.Index], &t.Remote.Pages[p.Remote.Index]
	for part := half * Parts / 2; part < min((half+1)*Parts/2, covered); part++ {
		dst.Stamps[part] = src.Stamps[part]
	}
}

// endPush closes the grant for the complete pages and reports the landing.
func (t *Transfer) endPush(w *World) {
	if t.Ended {
		return
	}
	if t.holding != nil {
		t.holding.Holds--
		t.holding = nil
	}
	t.Ended = true
	n := t.Remote.Node
	g := n.Grants[t.Grant]
	g.claim(t, false)
	for _, p := range t.Landed {
		for i := range g.Pages {
			if g.Pages[i].Index == p.Index {
				g.closed[i] = true
			}
		}
	}
	OnLanded.Report(&w.Panel, oracle.Nobody, Landed{t})
	t.landing = landingQueued
	n.inOrder(w, draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 1).Heavy(w.Setting.Net/8),
		Delivery{Kind: KindLanded, A: t.ID})
}

// indexOf returns the position of a page in the grant, or -1 if the page's index or generation differs.
func (g *Grant) indexOf(r effects.RemotePage) int {
	for i, p := range g.Pages {
		if p.Index == r.Index && p.Generation == r.Generation {
			return i
		}
	}
	return -1
}

// confirm carries out an [effects.Confirm]: the initiator is notified of the outcome.
func (n *Node) confirm(w *World, e *effects.Confirm) {
	if e.Landing == 0 || uint64(e.Landing) > uint64(len(w.Transfers)) {
		w.Fail("contract", "node %d confirms landing %d, which never was", n.It(), oracle.Transfer(e.Landing))
		return
	}
	t := w.Transfers[e.Landing-1]
	if t.Remote != n.Pool || t.landing != landingReported {
		w.Fail("contract", "node %d confirms landing %d, which it was not told of or has confirmed",
			n.It(), oracle.Transfer(e.Landing))
		return
	}
	t.landing = landingConfirmed
	code := e.Code
	if len(t.Landed) < len(t.Pairs) {
		code = t.stop // The cause on the plane takes precedence over the machine's code.
	}
	d := draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 2)
	switch {
	case t.Reported:
		t.settle(w, code, d.Heavy(w.Setting.Net))
	case code == effects.OK:
		t.report(w, code, true, d.Heavy(w.Setting.Net))
	default:
		t.failed(w, code, d)
	}
}
