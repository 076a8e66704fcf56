package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// How puts end, and how pages go back.

func (w *Cluster) putEnded(n *world.Node, e *effects.Deliver, c *Command) {
	w.Jury.OnPutEnded(n, e, c)
	j := &w.Jobs[c.Job]
	j.Puts--
	if e.Code != effects.OK {
		j.failed = true
		if !j.Whole && neverTaken(e.Code) || w.tooLarge(n, c) {
			j.Batches[c.Batch].Put = 0
		}
	} else {
		w.Jury.OnPutOK(n, e, c)
	}
	j.ok = j.Puts == 0 && !j.failed && (j.Whole || c.Batch+1 == len(j.Batches))
	w.Parted = j.Whole
	if !e.Held && !c.Returned {
		w.putReturned(n, c)
	}
}

// neverTaken: a command that ended so was refused as it came, and promises nothing.
func neverTaken(c effects.Code) bool {
	return c == effects.TooMany || c == effects.Invalid || c == effects.Draining || c == effects.Ended
}

// tooLarge says whether a put of n can never be offered: then it is refused as it comes.
func (w *Cluster) tooLarge(n *world.Node, c *Command) bool {
	return n.Pulls && len(c.Pages) > w.LentMax(n)
}

// putReturned gives the reserved pages back once the put's memory is the engine's.
func (w *Cluster) putReturned(n *world.Node, c *Command) {
	w.Jury.OnReturned(n, c)
	j := &w.Jobs[c.Job]
	if w.Failure != nil || !j.shared && w.refill(n, c) {
		return
	}
	if j.shared {
		j.Batches[c.Batch].back = true
		if slices.ContainsFunc(j.Batches, func(b Batch) bool { return !b.back }) {
			w.maybePartly(n, c)
			return
		}
	}
	w.Release(n, j.Batches[c.Batch].Reserve)
}

// Release gives back pages that were reserved.
func (w *Cluster) Release(n *world.Node, reserve effects.Ticket) {
	w.giveRelease(n, reserve, w.bodies.releases.One(ops.Release{Reserved: reserve}))
}

// giveRelease releases, and now and then does so twice.
func (w *Cluster) giveRelease(n *world.Node, t effects.Ticket, body effects.CommandBody) {
	kind := plan.WantRelease
	if _, got := body.(*ops.Unpin); got {
		kind = plan.WantUnpin
	}
	w.Jury.OnRelease(n, t)
	w.Give(n, Command{Want: kind, Target: t, Body: body}, 0)
	if w.Struck(plan.FaultAgain, w.Commands[t-1].Name, 0) {
		w.Give(n, Command{Want: kind, Target: t, Body: body}, 0)
	}
}

// Recalls says whether what a Reserve gave is for a recall to read into.
func (w *Cluster) Recalls(reserve effects.Ticket) bool {
	return reserve != 0 && w.Jobs[w.Commands[reserve-1].Job].Recall
}

func (w *Cluster) drain(n *world.Node) {
	w.Give(n, Command{Want: plan.WantDrain, Body: &rank.Drain{Patience: 5 * effects.Second}}, 5*effects.Second)
}
