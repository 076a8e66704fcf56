package world

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Copy is an [effects.Copy] of pages into the arena. The device moves half a page at a time, interleaved with further
// copies. A copy may fail or stall, and may continue for a while after a cancellation.
type Copy struct {
	ID        uint64
	Name      plan.Subject // in draws
	corr      effects.Corr
	Node      *Node
	Pool      *Pool
	Pairs     []effects.CopyPair
	Peer      effects.Incarnation // the peer that requested the pages
	Operation uint64              // the operation in which the peer requested the pages
	stopCode  effects.Code        // why the copy does not continue to its end
	halfDone  bool                // the second half of a page is due
	stopped   bool                // the copy moves nothing any more
	reported  bool                // CopyDone was queued
	settled   bool                // CopyDone or Settled has reported the copy as settled
	InUse     bool                // until the machine is notified that the copy is settled
}

// settledIsCopy marks a delivery of KindSettled that is about a copy.
const settledIsCopy = 1

// startCopy carries out an [effects.Copy].
func (n *Node) startCopy(w *World, e *effects.Copy) {
	n.copyCount++
	c := w.Arenas.copies.AllocCopy(Copy{ID: uint64(len(w.Copies) + 1), Name: plan.AboutCopy(n.ID, n.Incarnation, n.copyCount),
		corr: e.Corr, Node: n,
		Pool: n.Pool, Pairs: w.Arenas.moves.CopySlice(e.Pairs), InUse: true})
	w.Copies = append(w.Copies, c)
	if OnStartingCopy.Report(&w.Panel, n.ID, StartingCopy{n, c}); w.Failure != nil {
		return
	}
	c.scheduleMove(w, 0, 0)
}

// scheduleMove schedules the move of half a page.
func (c *Copy) scheduleMove(w *World, i, half int) {
	after := draw.Hash(w.Seed, draw.DeviceCopy, uint64(c.Name), uint64(2*i+half)).HeavyTail(w.Conditions.DeviceTime)
	if d, yes := w.DrawStrike(plan.FaultCopyStalled, c.Name, uint64(2*i+half)); yes {
		after += d.Duration(0, 3*effects.Second)
	}
	w.QueueForNode(c.Node, after, Delivery{Kind: kindMove, A: c.ID, B: uint64(i), C: uint64(half)})
}

// moveHalf completes the move of half a page.
func (c *Copy) moveHalf(w *World, i, half int) {
	if c.stopped {
		return
	}
	if d, yes := w.DrawStrike(plan.FaultDMAFailed, c.Name, uint64(2*i+half)); yes && c.stopCode == effects.OK {
		c.stopCode = drawRefusal(contract.Copying, d)
	}
	p := c.Pairs[i]
	src, dst := &c.Pool.Pages[p.From.Index], &c.Pool.Pages[p.To.Index]
	if c.stopCode == effects.OK || c.halfDone { // A submitted move is carried out, whatever became of the rest.
		w.Journal.AddLine(w.Now, kindMove, c.Node.ID, c.ID, uint64(i), uint64(half))
		OnCopyMoving.Report(&w.Panel, oracle.NoNode, CopyMoving{c, p})
		for part := half * Parts / 2; part < min((half+1)*Parts/2, c.Pool.PartCount(p.From.Length)); part++ {
			dst.Stamps[part] = src.Stamps[part]
		}
		if src.WasFlippedIn(p.From.Generation) {
			dst.FlippedIn = p.To.Generation
		}
	}
	c.halfDone = half == 0
	switch {
	case c.stopCode != effects.OK:
		c.finishCopy(w)
	case half == 0:
		c.scheduleMove(w, i, 1)
	case i+1 < len(c.Pairs):
		c.scheduleMove(w, i+1, 0)
	default:
		c.finishCopy(w)
	}
}

// finishCopy completes a copy that moves nothing any more. The device may report only later that the copy is settled.
func (c *Copy) finishCopy(w *World) {
	c.stopped = true
	d := draw.Hash(w.Seed, draw.DeviceCopy, uint64(c.Name), 1<<32)
	after := d.HeavyTail(w.Conditions.DeviceTime)
	switch {
	case c.reported:
		c.queueSettled(w, after)
	case c.stopCode == effects.OK || d.Rehash().ChancePermille(600):
		c.queueCopyDone(w, true, after)
	default:
		c.queueCopyDone(w, false, after)
		c.queueSettled(w, after+d.Rehash().Rehash().HeavyTail(w.Conditions.DeviceTime))
	}
}

// queueCopyDone queues the CopyDone of a copy.
func (c *Copy) queueCopyDone(w *World, settled bool, after effects.Duration) {
	x := Delivery{Kind: kindCopyDone, A: c.ID, B: uint64(c.stopCode)}
	if settled {
		x.C = 1
	}
	c.reported, c.settled = true, settled
	c.Node.queueEnd(w, &c.Node.copyQueue, after, draw.Hash(w.Seed, draw.Mailbox, c.ID, 1), x)
}

// queueSettled queues the Settled of a copy.
func (c *Copy) queueSettled(w *World, after effects.Duration) {
	c.settled = true
	c.Node.queueInOrder(w, &c.Node.copyQueue, after, Delivery{Kind: KindSettled, A: c.ID, B: uint64(c.stopCode), C: settledIsCopy})
}

// cancelCopy makes a copy end early. Either the copy is reported at once, and what the device still does must be
// awaited, or the copy ends when the device checks the next time.
func (n *Node) cancelCopy(w *World, corr effects.Corr) {
	for _, c := range w.Copies {
		if c.corr != corr || c.Pool != n.Pool || c.reported || c.stopped || c.stopCode != effects.OK {
			continue
		}
		c.stopCode = effects.Cancelled
		if d := draw.Hash(w.Seed, draw.DeviceCopy, uint64(c.Name), 2<<32); d.ChancePermille(500) {
			c.queueCopyDone(w, false, d.Rehash().HeavyTail(w.Conditions.DeviceTime))
		}
		return
	}
}
