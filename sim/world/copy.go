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
	stop      effects.Code        // why the copy does not continue to its end
	begun     bool                // the second half of a page is due
	over      bool                // the copy moves nothing any more
	reported  bool                // CopyDone was queued
	settled   bool                // CopyDone or Settled has reported the copy as settled
	Touching  bool                // until the machine is notified that the copy is settled
}

// settledCopy marks a delivery of KindSettled that is about a copy.
const settledCopy = 1

// copyOut carries out an [effects.Copy].
func (n *Node) copyOut(w *World, e *effects.Copy) {
	n.copies++
	c := w.Stock.copies.One(Copy{ID: uint64(len(w.Copies) + 1), Name: plan.AboutCopy(n.ID, n.Life, n.copies),
		corr: e.Corr, Node: n,
		Pool: n.Pool, Pairs: w.Stock.moves.Keep(e.Pairs), Touching: true})
	w.Copies = append(w.Copies, c)
	if OnCopying.Report(&w.Panel, n.ID, Copying{n, c}); w.Failure != nil {
		return
	}
	c.nextMove(w, 0, 0)
}

// nextMove schedules the move of half a page.
func (c *Copy) nextMove(w *World, i, half int) {
	after := draw.Hash(w.Seed, draw.DeviceCopy, uint64(c.Name), uint64(2*i+half)).Heavy(w.Setting.Device)
	if d, yes := w.Strikes(plan.FaultStall, c.Name, uint64(2*i+half)); yes {
		after += d.Span(0, 3*effects.Second)
	}
	w.ForNode(c.Node, after, Delivery{Kind: kindMove, A: c.ID, B: uint64(i), C: uint64(half)})
}

// move completes the move of half a page.
func (c *Copy) move(w *World, i, half int) {
	if c.over {
		return
	}
	if d, yes := w.Strikes(plan.FaultDMA, c.Name, uint64(2*i+half)); yes && c.stop == effects.OK {
		c.stop = refusal(contract.Copying, d)
	}
	p := c.Pairs[i]
	src, dst := &c.Pool.Pages[p.From.Index], &c.Pool.Pages[p.To.Index]
	if c.stop == effects.OK || c.begun { // A submitted move is carried out, whatever became of the rest.
		w.Journal.Note(w.Now, kindMove, c.Node.ID, c.ID, uint64(i), uint64(half))
		OnMoving.Report(&w.Panel, oracle.Nobody, Moving{c, p})
		for part := half * Parts / 2; part < min((half+1)*Parts/2, c.Pool.PartsOf(p.From.Length)); part++ {
			dst.Stamps[part] = src.Stamps[part]
		}
	}
	c.begun = half == 0
	switch {
	case c.stop != effects.OK:
		c.copyEnds(w)
	case half == 0:
		c.nextMove(w, i, 1)
	case i+1 < len(c.Pairs):
		c.nextMove(w, i+1, 0)
	default:
		c.copyEnds(w)
	}
}

// copyEnds completes a copy that moves nothing any more. The device may report only later that the copy is settled.
func (c *Copy) copyEnds(w *World) {
	c.over = true
	d := draw.Hash(w.Seed, draw.DeviceCopy, uint64(c.Name), 1<<32)
	after := d.Heavy(w.Setting.Device)
	switch {
	case c.reported:
		c.copySettles(w, after)
	case c.stop == effects.OK || d.Again().Permille(600):
		c.copyReported(w, true, after)
	default:
		c.copyReported(w, false, after)
		c.copySettles(w, after+d.Again().Again().Heavy(w.Setting.Device))
	}
}

// copyReported queues the CopyDone of a copy.
func (c *Copy) copyReported(w *World, settled bool, after effects.Duration) {
	x := Delivery{Kind: kindCopyDone, A: c.ID, B: uint64(c.stop)}
	if settled {
		x.C = 1
	}
	c.reported, c.settled = true, settled
	c.Node.inOrder(w, after, x)
}

// copySettles queues the Settled of a copy.
func (c *Copy) copySettles(w *World, after effects.Duration) {
	c.settled = true
	c.Node.inOrder(w, after, Delivery{Kind: KindSettled, A: c.ID, B: uint64(c.stop), C: settledCopy})
}

// cancelCopy makes a copy end early. Either the copy is reported at once, and what the device still does must be
// awaited, or the copy ends when the device checks the next time.
func (n *Node) cancelCopy(w *World, corr effects.Corr) {
	for _, c := range w.Copies {
		if c.corr != corr || c.Pool != n.Pool || c.reported || c.over || c.stop != effects.OK {
			continue
		}
		c.stop = effects.Cancelled
		if d := draw.Hash(w.Seed, draw.DeviceCopy, uint64(c.Name), 2<<32); d.Permille(500) {
			c.copyReported(w, false, d.Again().Heavy(w.Setting.Device))
		}
		return
	}
}
