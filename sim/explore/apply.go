package explore

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// applyChoice makes the choice. It returns false if the choice does not exist after all, because the step has fewer
// effects, or because the fault has no occasion in it.
func (b *state) applyChoice(s *Scope, c choice) bool {
	w := b.w
	if c.isFault() {
		b.faultsLeft--
	}
	switch c.move {
	case moveDeliver:
		b.deliverChoice(c)
	case moveTick:
		b.tickNode(w.Nodes[c.node])
	case moveWait:
		w.Now += int64(Unit)
	case moveStrike:
		return b.applyStrike(c)
	case moveCrash:
		w.CrashNode(w.Nodes[c.node])
	case moveCrashIn:
		n := w.Nodes[c.node]
		n.Trap = world.Trap{Moment: plan.Moment{IsSet: true}, Skip: uint64(c.nth)}
		if c.seq != 0 {
			b.deliverChoice(c)
		} else {
			b.tickNode(n)
		}
		b.settleDeliveries()
		if n.Trap.IsSet {
			return false
		}
	case moveDrain:
		b.run.StartDrain(w.Nodes[c.node], 5*effects.Second, false)
	case moveAbort:
		b.run.AbortCommand(w.Nodes[c.node], effects.Ticket(c.nth))
	case moveSystemFault:
		w.HandleDelivery(b.run.SystemFaults(s.SystemFault)[c.nth])
	case moveCutConn:
		cut := w.Conns[c.nth-1]
		w.Journal.AddLine(w.Now, world.KindCutConn, cut.Client, cut.ID, 0, 0)
		w.CutConn(cut, false)
	case moveCutLink:
		l := w.Links[c.nth-1]
		w.Journal.AddLine(w.Now, world.KindCutLink, l.From, l.ID, 0, 0)
		w.EndLink(w.Nodes[l.From], l, draw.Lowest, true)
	case moveStall:
		b.frozen, b.frozenAt = c.node, w.Now
		w.Journal.AddLine(w.Now, world.KindPause, c.node, 0, 0, 0)
	case moveThaw:
		w.Nodes[c.node].FrozenTime += w.Now - b.frozenAt
		b.frozen, b.frozenAt = plan.NoNode, 0
		w.Journal.AddLine(w.Now, world.KindResume, c.node, 0, 0, 0)
	}
	b.settleDeliveries()
	return true
}

// deliverChoice carries out a delivery. An action of an engine or of the proxy between two waits needs no separate
// choice: for the rest of the world an action that happens later is the same as an action that is noticed later. The
// resulting command is therefore carried out at once, unless other deliveries are ahead of it in its channel.
func (b *state) deliverChoice(c choice) {
	w := b.w
	before := w.Queue.Seq
	d := w.Queue.RemoveBySeq(c.seq)
	switch {
	case d.Kind == world.KindFetchJob:
		b.run.FetchNow(&d)
	case c.move == moveDeliver && c.nth > 0: // The driver omits every optional notification.
		w.Seed = draw.HighestSeed
		w.HandleDelivery(d)
		w.Seed = draw.LowestSeed
	default:
		w.HandleDelivery(d)
	}
	if b.stepwise || !givesCommands(d.Kind) {
		return
	}
	for i := 0; i < len(w.Queue.Heap) && w.Failure == nil; i++ {
		q := w.Queue.Heap[i]
		next := &w.Queue.Slab[q.Slot]
		if q.Seq > before && (next.Kind == world.KindCommand || next.Kind == world.KindFetchJob &&
			d.Kind == world.KindProxyPost) && !b.isStalled(next) && b.isChannelHead(q) {
			b.deliverChoice(choice{seq: q.Seq})
			i = -1
		}
	}
}

// isChannelHead reports whether no delivery is ahead of q in its channel.
func (b *state) isChannelHead(q world.QueueEntry) bool {
	w := b.w
	ch := channelOf(w, &w.Queue.Slab[q.Slot])
	return ch == 0 || !slices.ContainsFunc(w.Queue.Heap, func(o world.QueueEntry) bool {
		return o.Seq < q.Seq && channelOf(w, &w.Queue.Slab[o.Slot]) == ch
	})
}

// applyStrike makes a fault strike wherever it can in the next delivery or tick.
func (b *state) applyStrike(c choice) bool {
	w, f := b.w, plan.Fault(c.nth)
	before := w.Result.FaultCounts[f]
	w.Conditions.Rates[f] = 1000
	if c.seq != 0 {
		b.deliverChoice(choice{seq: c.seq})
	} else {
		b.tickNode(w.Nodes[c.node])
	}
	b.settleDeliveries()
	w.Conditions.Rates[f] = 0
	return w.Result.FaultCounts[f] > before
}

// tickNode lets time pass to the deadline of a node.
func (b *state) tickNode(n *world.Node) {
	t, _ := nextDeadline(n)
	b.w.Now = max(b.w.Now, n.InstantOf(t))
	for _, l := range n.Links {
		if c := l.Comm; c != nil && l.FromIncarnation == n.Incarnation {
			if at, ok := c.Machine.Deadline(); ok && at <= t {
				b.w.TickComm(l)
			}
		}
	}
	if at, ok := n.Machine.Deadline(); !ok || at > t {
		return
	}
	n.TickGen++
	b.w.HandleDelivery(world.Delivery{Kind: world.KindTick, Node: n.ID, Incarnation: n.Incarnation, A: n.TickGen})
}

// settleDeliveries delivers requests that have arrived, because no event in between could make a difference: the rest
// of the world cannot distinguish a request that has arrived from a request that is about to arrive. (Replies differ:
// once a reply is in the mailbox, closing the connection does not stop the reply.) settleDeliveries removes deliveries
// that can have no effect any more, and ticks, which follow from the deadlines.
func (b *state) settleDeliveries() {
	w := b.w
	for changed := true; changed && w.Failure == nil; {
		changed = false
		for i := 0; i < len(w.Queue.Heap); i++ {
			q := w.Queue.Heap[i]
			d := &w.Queue.Slab[q.Slot]
			isObsolete := d.Node >= 0 && d.Kind.IsForProcess() && d.Kind != world.KindStartJob && !w.IsRunning(d.Node, d.Incarnation) ||
				!b.stepwise && hasNoEffect(w, d)
			switch {
			case d.Kind == world.KindTick || d.Kind == world.KindCommTick || isObsolete:
				w.Queue.RemoveBySeq(q.Seq)
				i--
			case d.Kind == world.KindReceived:
				w.HandleDelivery(w.Queue.RemoveBySeq(q.Seq))
				changed = true
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
func hasNoEffect(w *world.World, d *world.Delivery) bool {
	switch d.Kind {
	case world.KindReplyArrives:
		c := w.Conns[d.A-1]
		return c.Dead || c.Closed || !w.IsRunning(c.Client, c.Incarnation)
	case world.KindRequestArrives:
		return w.Conns[d.A-1].IsCutOff()
	case world.KindCommFormCheck:
		return w.Links[d.A-1].Comm.EpochAt(d.B).Decided
	default:
		return false
	}
}
