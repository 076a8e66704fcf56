package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// This file contains the end of puts and the return of their pages.

// putEnded handles the outcome of a put. Unless the outcome holds the put's memory, putReturned follows at once.
func (c *Command) putEnded(w *Cluster, n *world.Node, e *effects.Deliver) {
	OnPutEnded.Report(&w.Panel, n.ID, PutEnded{n, e, c})
	j := &w.Jobs[c.Job]
	j.Puts--
	if e.Code != effects.OK {
		j.failed = true
		if !j.Whole && neverTaken(e.Code) || c.tooLarge(w, n) {
			j.Batches[c.Batch].Put = 0
		}
	} else {
		OnPutOK.Report(&w.Panel, n.ID, PutOK{n, e, c})
	}
	j.ok = j.Puts == 0 && !j.failed && (j.Whole || c.Batch+1 == len(j.Batches))
	w.Parted = j.Whole
	if e.Held && c.Attached {
		return
	}
	if e.Held {
		w.Flows.put(w, n, e.Ticket, false)
	} else if !c.Returned {
		c.putReturned(w, n, e.Ticket)
	}
}

// neverTaken reports whether a command that ended with this code was refused on arrival, so that the command has no
// effect.
func neverTaken(c effects.Code) bool {
	return c == effects.TooMany || c == effects.Invalid || c == effects.Draining || c == effects.Ended
}

// tooLarge reports whether a put of n has too many pages to be offered. Such a put is refused on arrival.
func (c *Command) tooLarge(w *Cluster, n *world.Node) bool {
	return n.Pulls && len(c.Pages) > w.LentMax(n)
}

// putReturned gives the reserved pages back after the put's memory has been returned to the engine.
func (c *Command) putReturned(w *Cluster, n *world.Node, t effects.Ticket) {
	OnReturned.Report(&w.Panel, n.ID, Returned{n, c})
	j := &w.Jobs[c.Job]
	if w.Failure != nil || c.Attached {
		return
	}
	if use := w.Flows.put(w, n, t, true); use == Lent || use == Unused && !j.shared && w.Commands[t-1].refill(w, n) {
		return
	}
	c = &w.Commands[t-1] // More commands may have been given, so that c may be stale.
	if j.shared {
		j.Batches[c.Batch].back = true
		if slices.ContainsFunc(j.Batches, func(b Batch) bool { return !b.back }) {
			c.maybePartly(w, n)
			return
		}
	}
	w.Release(n, j.Batches[c.Batch].Reserve)
}

// Later makes the engine of a job continue after the time in, at the place at, which is passed to the flow's function.
func Later(w *Cluster, n *world.Node, j *Job, at int, in effects.Duration) {
	w.ForNode(n, in, world.Delivery{Kind: world.KindFilled, A: uint64(j.Place), B: uint64(at)})
}

// Release gives reserved pages back.
func (w *Cluster) Release(n *world.Node, reserve effects.Ticket) {
	w.Commands[reserve-1].release(w, n, reserve, w.bodies.releases.One(ops.Release{Reserved: reserve}))
}

// release gives back the pages that the command obtained. FaultAgain makes the engine release the pages twice.
func (c *Command) release(w *Cluster, n *world.Node, t effects.Ticket, body effects.CommandBody) {
	kind := plan.WantRelease
	if _, got := body.(*ops.Unpin); got {
		kind = plan.WantUnpin
	}
	name := c.Name
	OnReleasing.Report(&w.Panel, n.ID, Releasing{n, t})
	w.Give(n, Command{Want: kind, Target: t, Body: body}, 0)
	if w.Struck(plan.FaultAgain, name, 0) {
		w.Give(n, Command{Want: kind, Target: t, Body: body}, 0)
	}
}

// ForFlow reports whether the pages of a Reserve belong to a job of a flow, which reads into them.
func (w *Cluster) ForFlow(reserve effects.Ticket) bool {
	return reserve != 0 && w.Flows.owner(&w.Jobs[w.Commands[reserve-1].Job]) != nil
}
