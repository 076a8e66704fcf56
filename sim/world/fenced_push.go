package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// handleRequest handles the arrival of a transfer request at the owner of the pages. The owner trusts neither a clock
// nor the peer: only the grant decides (M3).
func (t *Transfer) handleRequest(w *World) {
	n := t.Remote.Node
	if t.Ended {
		return // The link was cut before anything began.
	}
	if t.Read {
		t.startCopying(w)
		return
	}
	code := n.Grants[t.Grant].admitPush(t)
	if d, yes := w.DrawStrike(plan.FaultPushRefused, t.Name, 0); yes && code == effects.OK {
		code = pushRefusals[d.Below(uint64(len(pushRefusals)))]
	}
	w.Journal.AddLine(w.Now, KindTransferRequest, n.ID, t.ID, uint64(code), 0)
	if code != effects.OK {
		t.Ended = true
		t.failPush(w, code, draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 0))
		return
	}
	n.Grants[t.Grant].setClaimed(t, true)
	t.CopyStarted = true
	t.scheduleCopy(w, 0, 0)
}

// scheduleCopy schedules the copy of half a page.
func (t *Transfer) scheduleCopy(w *World, pair, half int) {
	d := draw.Hash(w.Seed, draw.Copy, uint64(t.Name), uint64(2*pair+half))
	w.QueueForNode(t.copyingNode(), d.HeavyTail(w.Conditions.DeviceTime)+t.drawStall(w, 2*pair+half),
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
		if t.stopCode != effects.OK {
			t.endPush(w)
			return
		}
		at := g.remotePageIndex(p.Remote)
		switch {
		case g.Revoking || at < 0 || g.closed[at] || p.Local.Length > g.Pages[at].Length:
			t.stopCode = effects.Withdrawn
		case !t.isUnchanged(i):
			t.stopCode = effects.Stale
		case w.IsStruck(plan.FaultDMAFailed, t.Name, uint64(i)):
			t.stopCode = effects.Faulted
		}
		if t.stopCode != effects.OK {
			t.endPush(w)
			return
		}
		t.flipSource(w, i)
		g.Holds++
		t.heldGrant = g
	}
	w.Journal.AddLine(w.Now, KindCopy, n.ID, t.ID, uint64(i), uint64(half))
	OnHalfStored.Report(&w.Panel, oracle.NoNode, HalfStored{t, i, half})
	t.moveHalf(w, i, half)
	if half == 0 {
		t.scheduleCopy(w, i, 1)
		return
	}
	t.flipStored(w, i)
	g.Holds--
	t.heldGrant = nil
	switch unchanged := t.isUnchanged(i); {
	case !unchanged && t.stopCode == effects.OK:
		t.stopCode = effects.Stale
	case unchanged && w.IsStruck(plan.FaultHalfPage, t.Name, uint64(i)):
		t.stopCode = effects.Faulted
	case unchanged && !t.hasSum(w, i, g.Pages[g.remotePageIndex(p.Remote)].Sum):
		t.stopCode, t.corrupt = effects.Corrupt, t.corrupt+1
	case unchanged:
		OnPageCopied.Report(&w.Panel, oracle.NoNode, PageCopied{t, i})
		t.Landed = append(t.Landed, g.Pages[g.remotePageIndex(p.Remote)])
		t.Landed[len(t.Landed)-1].Length = p.Local.Length
	}
	switch {
	case g.Revoking && g.Holds == 0:
		t.stopCode = effects.Withdrawn
		t.endPush(w)
		g.finishRevoke(w, n)
	case t.stopCode != effects.OK || i+1 == len(t.Pairs):
		t.endPush(w)
	default:
		t.scheduleCopy(w, i+1, 0)
	}
}

// moveHalf moves the part of a half that the page's length covers.
func (t *Transfer) moveHalf(w *World, i, half int) {
	p := t.Pairs[i]
	if t.Gather.Layers > 0 {
		t.gatherHalf(i, half)
		return
	}
	covered := t.Local.PartCount(p.Local.Length)
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
	if t.heldGrant != nil {
		t.heldGrant.Holds--
		t.heldGrant = nil
	}
	t.Ended = true
	n := t.Remote.Node
	g := n.Grants[t.Grant]
	g.setClaimed(t, false)
	for _, p := range t.Landed {
		for i := range g.Pages {
			if g.Pages[i].Index == p.Index {
				g.closed[i] = true
			}
		}
	}
	OnTransferLanded.Report(&w.Panel, oracle.NoNode, TransferLanded{t})
	t.landing = landingQueued
	n.queueInOrder(w, &n.poolQueue, draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 1).HeavyTail(w.Conditions.MessageTime/8),
		Delivery{Kind: KindLanded, A: t.ID})
}

// remotePageIndex returns the position of a page in the grant, or -1 if the page's index or generation differs.
func (g *Grant) remotePageIndex(page effects.RemotePage) int {
	for i, p := range g.Pages {
		if p.Index == page.Index && p.Generation == page.Generation {
			return i
		}
	}
	return -1
}

// confirmLanding carries out an [effects.Confirm]: the initiator is notified of the outcome.
func (n *Node) confirmLanding(w *World, e *effects.Confirm) {
	if e.Landing == 0 || uint64(e.Landing) > uint64(len(w.Transfers)) {
		w.Fail("contract", "node %d confirms landing %d, which does not exist", n.AsSubject(), oracle.Transfer(e.Landing))
		return
	}
	t := w.Transfers[e.Landing-1]
	if t.Remote != n.Pool || t.landing != landingReported {
		w.Fail("contract", "node %d confirms landing %d, which was not reported or is already confirmed",
			n.AsSubject(), oracle.Transfer(e.Landing))
		return
	}
	t.landing = landingConfirmed
	code := e.Code
	if len(t.Landed) < len(t.Pairs) {
		code = t.stopCode // The cause on the plane takes precedence over the machine's code.
	}
	d := draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 2)
	switch {
	case t.Reported:
		t.reportSettled(w, code, d.HeavyTail(w.Conditions.MessageTime))
	case code == effects.OK:
		t.reportDone(w, code, true, d.HeavyTail(w.Conditions.MessageTime))
	default:
		t.failPush(w, code, d)
	}
}
