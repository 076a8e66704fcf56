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
	if t.ownerSends = !d.Rehash().ChancePermille(600); !t.ownerSends {
		t.startCopying(w)
		return
	}
	if t.Remote.isServed() {
		w.QueueForNode(t.Remote.Node, d.HeavyTail(w.Conditions.MessageTime)+w.blockedTime(t.Local.Node.ID, t.Remote.Node.ID),
			Delivery{Kind: KindTransferRequest, A: t.ID})
	}
}

// startCopying begins to copy, unless the grant does not allow the read.
func (t *Transfer) startCopying(w *World) {
	code := t.admitRead()
	if d, yes := w.DrawStrike(plan.FaultPushRefused, t.Name, 0); yes && code == effects.OK {
		if code = drawRefusal(contract.Transferring, d); code == effects.Mismatch { // A read may be shorter.
			code = effects.Refused
		}
	}
	w.Journal.AddLine(w.Now, KindTransferRequest, t.copyingNode().ID, t.ID, uint64(code), 0)
	if code != effects.OK {
		t.stopCode = code
		t.endRead(w)
		return
	}
	t.CopyStarted = true
	t.scheduleCopy(w, 0, 0)
}

// namesForeignBuffer reports whether a read names a buffer that does not belong to the target of its link.
func (t *Transfer) namesForeignBuffer(w *World) bool {
	for _, p := range t.Pairs {
		if t.Read && w.Buffers[p.Remote.Buffer] != t.Remote {
			return true
		}
	}
	return false
}

// copyingNode returns the node that runs the thread which moves the bytes of a transfer on a fenced plane.
func (t *Transfer) copyingNode() *Node {
	if t.Read && !t.ownerSends {
		return t.Local.Node
	}
	return t.Remote.Node
}

// admitRead decides whether a read is admitted: all of its pages must be leased as stated.
func (t *Transfer) admitRead() effects.Code {
	g := t.Lease
	switch {
	case g == nil || g.Revoked || g.Revoking || g.Peer == (effects.Incarnation{}):
		return effects.Withdrawn
	case g.Peer != t.Initiator:
		return effects.Refused
	}
	for _, p := range t.Pairs {
		index := g.PageIndex(p.Remote.Index)
		switch {
		case index < 0:
			return effects.Withdrawn
		case g.Pages[index].Generation != p.Remote.Generation:
			return effects.Stale
		case p.Local.Length > g.Pages[index].Length:
			return effects.TooLarge
		}
	}
	return effects.OK
}

// checkPage returns OK if a page that was read may be delivered. Otherwise the grant is revoked, or the page has
// another generation.
func (t *Transfer) checkPage(i int) effects.Code {
	p := t.Pairs[i].Remote
	switch {
	case t.Lease.Revoking:
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
		if t.stopCode == effects.OK {
			t.stopCode = t.checkRead(w, i)
		}
		if t.stopCode != effects.OK {
			t.endRead(w)
			return
		}
		t.flipSource(w, i)
		t.inPage = true
		if t.ownerSends {
			t.Lease.Holds++
			t.heldGrant = t.Lease
		}
	}
	w.Journal.AddLine(w.Now, KindCopy, t.copyingNode().ID, t.ID, uint64(i), uint64(half))
	OnPageLoaded.Report(&w.Panel, oracle.NoNode, PageLoaded{t, i})
	t.fetchHalf(i, half)
	if half == 0 {
		t.scheduleCopy(w, i, 1)
		return
	}
	t.inPage = false
	t.flipStored(w, i)
	switch {
	case t.stopCode != effects.OK:
	case t.checkPage(i) != effects.OK:
		t.stopCode = t.checkPage(i)
	case w.IsStruck(plan.FaultHalfPage, t.Name, uint64(i)):
		t.stopCode = effects.Faulted
	case !t.hasSum(w, i, t.Pairs[i].Remote.Sum):
		t.stopCode = effects.Corrupt
	default:
		OnPageRead.Report(&w.Panel, oracle.NoNode, PageRead{t, i})
		t.doneCount++
	}
	if t.stopCode != effects.OK || i+1 == len(t.Pairs) {
		t.endRead(w)
		return
	}
	t.releaseHold(w)
	t.scheduleCopy(w, i+1, 0)
}

// checkRead returns OK if the read of a page may begin.
func (t *Transfer) checkRead(w *World, i int) effects.Code {
	switch {
	case w.ReadClock(t.Local.Node) > t.NotAfter:
		return effects.Expired
	case t.checkPage(i) != effects.OK:
		return t.checkPage(i)
	case w.IsStruck(plan.FaultDMAFailed, t.Name, uint64(i)):
		return effects.Faulted
	}
	return effects.OK
}

// fetchHalf moves the part of a half that the page's length covers.
func (t *Transfer) fetchHalf(i, half int) {
	p := t.Pairs[i]
	src, dst := &t.Remote.Pages[p.Remote.Index], &t.Local.Pages[p.Local.Index]
	for part := half * Parts / 2; part < min((half+1)*Parts/2, t.Local.PartCount(p.Local.Length)); part++ {
		dst.Stamps[part] = src.Stamps[part]
	}
}

// releaseHold releases the hold of a page, and completes a revocation that waited only for this hold (M3).
func (t *Transfer) releaseHold(w *World) {
	g := t.heldGrant
	if g == nil {
		return
	}
	t.heldGrant = nil
	if g.Holds--; g.Holds == 0 && g.Revoking && !g.Revoked && t.Remote.IsAlive() {
		g.finishRevoke(w, t.Remote.Node)
	}
}

// endRead ends the copies of a read and reports the outcome.
func (t *Transfer) endRead(w *World) {
	if t.Ended {
		return
	}
	t.Ended, t.inPage = true, false
	t.releaseHold(w)
	code := t.stopCode
	if t.doneCount == len(t.Pairs) {
		code = effects.OK
	}
	d := draw.Hash(w.Seed, draw.Ack, uint64(t.Name), 1)
	switch {
	case t.Reported:
		t.reportSettled(w, code, d.HeavyTail(w.Conditions.MessageTime/8))
	case code == effects.OK:
		t.reportDone(w, code, true, d.HeavyTail(w.Conditions.MessageTime/8))
	default:
		t.failPush(w, code, d)
	}
}

// stopRead ends a read on the initiator's side. A thread that is in the middle of a page finishes the page; until then
// the read is not settled.
func (t *Transfer) stopRead(w *World, d draw.Value, after effects.Duration) {
	switch {
	case !t.inPage || t.ownerSends && !t.Remote.isServed():
		t.Ended, t.inPage = true, false
		t.releaseHold(w)
		if d.Rehash().ChancePermille(700) {
			t.reportDone(w, t.stopCode, true, after)
			return
		}
		t.reportDone(w, t.stopCode, false, after)
		t.reportSettled(w, t.stopCode, after+d.Rehash().Rehash().HeavyTail(w.Conditions.DeviceTime))
	default:
		t.reportDone(w, t.stopCode, false, after)
	}
}
