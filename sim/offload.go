package sim

import (
	"github.com/kvferry/kvferry/contract"
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// offload is one Copy from the pool that the engine fills to the one that peers read. The device moves
// half a page at a time, beside those of other copies; it may fail, stall, and after it was given up go on for a while.
type offload struct {
	id       uint64
	name     plan.Subject // in draws
	corr     effects.Corr
	node     *node
	from, to *pool
	pairs    []effects.CopyPair
	put      effects.Ticket // whose chunks they are
	stop     effects.Code   // why it does not go on to its end
	begun    bool           // half a page is under way
	over     bool           // nothing of it moves any more
	reported bool           // CopyDone was queued
	settled  bool           // and it, or Settled, said so
	touching bool           // until its machine heard that
}

// engine is the pool that the node's engine fills: its only one, unless it offloads.
func (n *node) engine() *pool {
	if n.device != nil {
		return n.device
	}
	return n.pool
}

// poolOf is the pool that pages of a node name.
func (n *node) poolOf(pages []effects.Page) *pool {
	if len(pages) > 0 && pages[0].Pool == n.engine().number {
		return n.engine()
	}
	return n.pool
}

// settledCopy tells a delivery of kindSettled that it is of a copy.
const settledCopy = 1

// copyOut carries out a Copy.
func (w *world) copyOut(n *node, e *effects.Copy) {
	n.copies++
	c := w.stock.offloads.one(offload{id: uint64(len(w.offloads) + 1), name: plan.AboutCopy(n.id, n.life, n.copies),
		corr: e.Corr, node: n,
		from: n.engine(), to: n.pool, pairs: w.stock.moves.keep(e.Pairs), touching: true})
	w.offloads = append(w.offloads, c)
	if w.oracles.onCopy(n, c); w.failure != nil {
		return
	}
	w.nextMove(c, 0, 0)
}

func (w *world) nextMove(c *offload, i, half int) {
	after := draw.Hash(w.seed, draw.Offload, uint64(c.name), uint64(2*i+half)).Heavy(w.plan.Device)
	if d, yes := w.strikes(plan.FaultStall, c.name, uint64(2*i+half)); yes {
		after += d.Span(0, 3*effects.Second)
	}
	w.forNode(c.node, after, delivery{kind: kindMove, a: c.id, b: uint64(i), c: uint64(half)})
}

// move is the end of half a page.
func (w *world) move(c *offload, i, half int) {
	if c.over {
		return
	}
	if d, yes := w.strikes(plan.FaultDMA, c.name, uint64(2*i+half)); yes && c.stop == effects.OK {
		c.stop = refusal(contract.Copying, d)
	}
	p := c.pairs[i]
	src, dst := &c.from.pages[p.From.Index], &c.to.pages[p.To.Index]
	if c.stop == effects.OK || c.begun { // What was submitted is carried out, whatever became of the rest.
		w.journal.note(w.now, kindMove, c.node.id, c.id, uint64(i), uint64(half))
		w.oracles.onMove(c, p)
		for part := half * parts / 2; part < min((half+1)*parts/2, c.from.partsOf(p.From.Length)); part++ {
			dst.stamps[part] = src.stamps[part]
		}
	}
	c.begun = half == 0
	switch {
	case c.stop != effects.OK:
		w.copyEnds(c)
	case half == 0:
		w.nextMove(c, i, 1)
	case i+1 < len(c.pairs):
		w.nextMove(c, i+1, 0)
	default:
		w.copyEnds(c)
	}
}

// copyEnds completes a copy of which nothing moves any more, unless the device says only later that this is so.
func (w *world) copyEnds(c *offload) {
	c.over = true
	d := draw.Hash(w.seed, draw.Offload, uint64(c.name), 1<<32)
	after := d.Heavy(w.plan.Device)
	switch {
	case c.reported:
		w.copySettles(c, after)
	case c.stop == effects.OK || d.Again().Permille(600):
		w.copyReported(c, true, after)
	default:
		w.copyReported(c, false, after)
		w.copySettles(c, after+d.Again().Again().Heavy(w.plan.Device))
	}
}

func (w *world) copyReported(c *offload, settled bool, after effects.Duration) {
	x := delivery{kind: kindCopyDone, a: c.id, b: uint64(c.stop)}
	if settled {
		x.c = 1
	}
	c.reported, c.settled = true, settled
	w.inOrder(c.node, after, x)
}

func (w *world) copySettles(c *offload, after effects.Duration) {
	c.settled = true
	w.inOrder(c.node, after, delivery{kind: kindSettled, a: c.id, b: uint64(c.stop), c: settledCopy})
}

// cancelCopy hastens the end of a copy: at once, with what the device still does to be waited for, or when it next looks.
func (w *world) cancelCopy(n *node, corr effects.Corr) {
	for _, c := range w.offloads {
		if c.corr != corr || c.to != n.pool || c.reported || c.over || c.stop != effects.OK {
			continue
		}
		c.stop = effects.Cancelled
		if d := draw.Hash(w.seed, draw.Offload, uint64(c.name), 2<<32); d.Permille(500) {
			w.copyReported(c, false, d.Again().Heavy(w.plan.Device))
		}
		return
	}
}
