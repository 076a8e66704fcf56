package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// This file contains the end of puts and the return of their pages.

// handlePutOutcome handles the outcome of a put. Unless the outcome holds the put's memory, handlePutReturn follows at
// once.
func (c *Command) handlePutOutcome(w *Cluster, n *world.Node, e *effects.Deliver) {
	OnPutOutcome.Report(&w.Panel, n.ID, PutOutcome{n, e, c})
	j := &w.Jobs[c.Job]
	j.OpenPuts--
	if e.Code != effects.OK {
		j.failed = true
		if !j.Whole && isRefusedOnArrival(e.Code) || c.isTooLarge(w, n) {
			j.Batches[c.Batch].Put = 0
		}
	} else {
		OnPutSucceeded.Report(&w.Panel, n.ID, PutSucceeded{n, e, c})
	}
	j.allPutsOK = j.OpenPuts == 0 && !j.failed && (j.Whole || c.Batch+1 == len(j.Batches))
	w.CallPartEnded = j.Whole
	if j.OpenPuts == 0 && !c.Attached && w.Flows.ownerOf(j) == nil && (j.failed || j.allPutsOK) {
		MaybeReportEnd(w, n, j, e.Code)
		c = w.CommandOf(n, e.Ticket) // There are more commands, so that c may be stale.
	}
	if e.Held && c.Attached {
		return
	}
	if e.Held {
		w.Flows.notifyPut(w, n, e.Ticket, false)
	} else if !c.ReturnedEarly {
		c.handlePutReturn(w, n, e.Ticket)
	}
}

// isRefusedOnArrival reports whether a command that ended with this code was refused on arrival, so that the command
// has no effect.
func isRefusedOnArrival(c effects.Code) bool {
	return c == effects.TooMany || c == effects.Invalid || c == effects.Draining || c == effects.Ended
}

// isTooLarge reports whether a put of n has too many pages to be offered. Such a put is refused on arrival.
func (c *Command) isTooLarge(w *Cluster, n *world.Node) bool {
	return n.OffersChunks && len(c.Pages) > w.LeasedPagesMax(n)
}

// handlePutReturn gives the reserved pages back after the put's memory has been returned to the engine.
func (c *Command) handlePutReturn(w *Cluster, n *world.Node, t effects.Ticket) {
	OnPutReturned.Report(&w.Panel, n.ID, PutReturned{n, c})
	j := &w.Jobs[c.Job]
	if w.Failure != nil || c.Attached {
		return
	}
	if use := w.Flows.notifyPut(w, n, t, true); use == PagesLent ||
		use == PagesUnused && !j.sharesReserve && w.Commands[t-1].maybeRefill(w, n) {
		return
	}
	c = &w.Commands[t-1] // More commands may have been given, so that c may be stale.
	if j.sharesReserve {
		j.Batches[c.Batch].memoryReturned = true
		if slices.ContainsFunc(j.Batches, func(b Batch) bool { return !b.memoryReturned }) {
			c.maybeReleaseSharedReserve(w, n)
			return
		}
	}
	w.ReleaseReserve(n, j.Batches[c.Batch].Reserve)
}

// ContinueLater makes the engine of a job continue after delay, at the place at, which is passed to the flow's
// function.
func ContinueLater(w *Cluster, n *world.Node, j *Job, at int, delay effects.Duration) {
	w.QueueForNode(n, delay, world.Delivery{Kind: world.KindPagesFilled, A: uint64(j.Index), B: uint64(at)})
}

// ReleaseReserve gives reserved pages back.
func (w *Cluster) ReleaseReserve(n *world.Node, reserve effects.Ticket) {
	w.Commands[reserve-1].giveRelease(w, n, reserve, w.bodies.releases.AllocCopy(ops.Release{Reserved: reserve}))
}

// giveRelease gives back the pages that the command obtained. FaultReleasedTwice makes the engine release the pages
// twice.
func (c *Command) giveRelease(w *Cluster, n *world.Node, t effects.Ticket, body effects.CommandBody) {
	kind := plan.CommandRelease
	if _, isUnpin := body.(*ops.Unpin); isUnpin {
		kind = plan.CommandUnpin
	}
	name := c.Name
	OnPagesReleased.Report(&w.Panel, n.ID, PagesReleased{n, t})
	w.GiveCommand(n, Command{Kind: kind, Target: t, Body: body}, 0)
	if w.IsStruck(plan.FaultReleasedTwice, name, 0) {
		w.GiveCommand(n, Command{Kind: kind, Target: t, Body: body}, 0)
	}
}

// IsFlowReserve reports whether the pages of a Reserve belong to a job of a flow, which reads into them.
func (w *Cluster) IsFlowReserve(reserve effects.Ticket) bool {
	return reserve != 0 && w.Flows.ownerOf(&w.Jobs[w.Commands[reserve-1].Job]) != nil
}
