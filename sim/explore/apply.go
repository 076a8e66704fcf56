package explore

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// apply makes the choice. apply returns false if the choice does not exist after all, because the step has fewer
// effects, or because the fault has no occasion in it.
func (b *branch) apply(s *Scope, c choice) bool {
	w := b.w
	if c.fault() {
		b.left--
	}
	switch c.move {
	case moveDeliver:
		b.deliver(c)
	case moveTick:
		b.tick(w.Nodes[c.node])
	case moveWait:
		w.Now += int64(Unit)
	case moveStrike:
		return b.strike(c)
	case moveCrash:
		w.Crash(w.Nodes[c.node])
	case moveCrashIn:
		n := w.Nodes[c.node]
		n.Trap = world.Trap{Moment: plan.Moment{Is: true}, Skip: uint64(c.nth)}
		if c.seq != 0 {
			b.deliver(c)
		} else {
			b.tick(n)
		}
		b.settle()
		if n.Trap.Is {
			return false
		}
	case moveDrain:
		b.run.Leave(w.Nodes[c.node], 5*effects.Second, false)
	case moveAbort:
		b.run.GiveAbort(w.Nodes[c.node], effects.Ticket(c.nth))
	case moveHarm:
		w.Deliver(b.run.Harms(s.Harm)[c.nth])
	case moveCutConn:
		cut := w.Conns[c.nth-1]
		w.Journal.Note(w.Now, world.KindCutConn, cut.Client, cut.ID, 0, 0)
		w.Cut(cut, false)
	case moveCutLink:
		l := w.Links[c.nth-1]
		w.Journal.Note(w.Now, world.KindCutLink, l.From, l.ID, 0, 0)
		w.EndLink(w.Nodes[l.From], l, draw.Still, true)
	case moveStall:
		b.frozen, b.frozenAt = c.node, w.Now
		w.Journal.Note(w.Now, world.KindPause, c.node, 0, 0, 0)
	case moveThaw:
		w.Nodes[c.node].Frozen += w.Now - b.frozenAt
		b.frozen, b.frozenAt = plan.Nobody, 0
		w.Journal.Note(w.Now, world.KindThaw, c.node, 0, 0, 0)
	}
	b.settle()
	return true
}

// deliverChoice carries out a delivery. An action of an engine or of the proxy between two waits needs no separate
// choice: for the rest of the world an action that happens later is the same as an action that is noticed later. The
// resulting command is therefore carried out at once, unless other deliveries are ahead of it in its channel.
func (b *branch) deliver(c choice) {
	w := b.w
	before := w.Queue.Seq
	d := w.Queue.Take(c.seq)
	switch {
	case d.Kind == world.KindFetch:
		b.run.Fetches(&d)
	case c.move == moveDeliver && c.nth > 0: // The driver omits every optional notification.
		w.Seed = draw.RestlessSeed
		w.Deliver(d)
		w.Seed = draw.StillSeed
	default:
		w.Deliver(d)
	}
	if b.stepwise || !commands(d.Kind) {
		return
	}
	for i := 0; i < len(w.Queue.Heap) && w.Failure == nil; i++ {
		q := w.Queue.Heap[i]
		next := &w.Queue.Slab[q.Slot]
		if q.Seq > before && (next.Kind == world.KindCommand || next.Kind == world.KindFetch &&
			d.Kind == world.KindPosted) && !b.stalls(next) && b.head(q) {
			b.deliver(choice{seq: q.Seq})
			i = -1
		}
	}
}

// head reports whether no delivery is ahead of q in its channel.
func (b *branch) head(q world.Queued) bool {
	w := b.w
	ch := channelOf(w, &w.Queue.Slab[q.Slot])
	return ch == 0 || !slices.ContainsFunc(w.Queue.Heap, func(o world.Queued) bool {
		return o.Seq < q.Seq && channelOf(w, &w.Queue.Slab[o.Slot]) == ch
	})
}

// strike makes a fault strike wherever it can in the next delivery or tick.
func (b *branch) strike(c choice) bool {
	w, f := b.w, plan.Fault(c.nth)
	before := w.Result.Counted[f]
	w.Setting.Rates[f] = 1000
	if c.seq != 0 {
		b.deliver(choice{seq: c.seq})
	} else {
		b.tick(w.Nodes[c.node])
	}
	b.settle()
	w.Setting.Rates[f] = 0
	return w.Result.Counted[f] > before
}

// tick lets time pass to the deadline of a node.
func (b *branch) tick(n *world.Node) {
	t, _ := deadline(n)
	b.w.Now = max(b.w.Now, n.When(t))
	for _, l := range n.Links {
		if c := l.Comm; c != nil && l.FromLife == n.Life {
			if at, ok := c.M.Deadline(); ok && at <= t {
				b.w.CommTick(l)
			}
		}
	}
	if at, ok := n.Machine.Deadline(); !ok || at > t {
		return
	}
	n.TickGen++
	b.w.Deliver(world.Delivery{Kind: world.KindTick, Node: n.ID, Life: n.Life, A: n.TickGen})
}

// settle delivers requests that have arrived, because no event in between could make a difference: the rest of the
// world cannot distinguish a request that has arrived from a request that is about to arrive. (Replies differ: once a
// reply is in the mailbox, closing the connection does not stop the reply.) settle removes deliveries that can have no
// effect any more, and ticks, which follow from the deadlines.
func (b *branch) settle() {
	w := b.w
	for again := true; again && w.Failure == nil; {
		again = false
		for i := 0; i < len(w.Queue.Heap); i++ {
			q := w.Queue.Heap[i]
			d := &w.Queue.Slab[q.Slot]
			gone := d.Node >= 0 && d.Kind.OfProcess() && d.Kind != world.KindStart && !w.Lives(d.Node, d.Life) ||
				!b.stepwise && idle(w, d)
			switch {
			case d.Kind == world.KindTick || d.Kind == world.KindCommTick || gone:
				w.Queue.Take(q.Seq)
				i--
			case d.Kind == world.KindReceived:
				w.Deliver(w.Queue.Take(q.Seq))
				again = true
				i = len(w.Queue.Heap)
			}
		}
	}
	for _, n := range w.Nodes {
		n.TickAt = 0
	}
}

// hasNoEffect reports whether d has no effect at any time, because d belongs to a connection that is closed or silently
// dead, on which no event may follow.
func idle(w *world.World, d *world.Delivery) bool {
	switch d.Kind {
	case world.KindAnswer:
		c := w.Conns[d.A-1]
		return c.Dead || c.Closed || !w.Lives(c.Client, c.Life)
	case world.KindArrive:
		return w.Conns[d.A-1].Drowned()
	case world.KindCommForm:
		return w.Links[d.A-1].Comm.Epoch(d.B).Decided
	default:
		return false
	}
}
