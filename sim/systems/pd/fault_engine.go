package pd

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// This file contains engines that contradict themselves. Their commands must be refused with the right code, and must
// change nothing.

// The kinds of conflicting commands. A draw chooses among the kinds below conflictKinds.
const (
	conflictEarly   = iota // release of a reserve while the put of its pages is in flight
	conflictUnknown        // abort of a ticket that never existed
	conflictStale          // put of pages with a generation that is not theirs
	conflictEmpty          // put without keys and pages
	conflictRole           // command of a role that the node does not have
	conflictEnded          // another put for a request after the put of its last batch
	conflictLate           // put for another request after the end of all batches of that request
	conflictKinds
	conflictWaiting // release of a Get or a Reserve that has not delivered yet
	conflictBetween // put between the parts of a call, with more parts than there can be space for
	conflictDrain   // drain of a node that already drains
)

// maybeConflict draws whether an engine contradicts the put that it has just given.
func (c *Command) maybeConflict(w *Cluster, n *world.Node, put effects.Ticket) {
	if d, ok := w.DrawStrike(plan.FaultConflictingCommand, c.Name, 0); ok {
		w.QueueForNode(n, d.HeavyTail(10*effects.Millisecond), world.Delivery{Kind: world.KindConflict, A: uint64(put),
			B: d.Rehash().Below(conflictKinds)})
	}
}

// maybeConflictBetweenParts draws whether an engine gives a put that must be refused directly after the first part of a
// call.
func (c *Command) maybeConflictBetweenParts(w *Cluster, n *world.Node, first effects.Ticket) {
	if _, ok := w.DrawStrike(plan.FaultConflictingCommand, c.Name, 1); ok {
		body := *c.Body.(*ops.Put)
		body.Last, body.Request, body.Follow = false, nil, 1<<20
		w.GiveCommand(n, Command{Kind: plan.CommandConflict, Job: c.Job, Batch: conflictBetween, Target: first, Body: &body}, 0)
	}
}

// maybeReleaseEarly draws whether an engine gives back the pages of a Get or a Reserve before their delivery.
func (c *Command) maybeReleaseEarly(w *Cluster, n *world.Node, t effects.Ticket) {
	if draw.IsFixed(w.Seed) {
		return // A small world has no time in which the release could arrive after the command that it contradicts.
	}
	if d, ok := w.DrawStrike(plan.FaultConflictingCommand, c.Name, 0); ok {
		w.QueueForNode(n, d.HeavyTail(3*effects.Millisecond),
			world.Delivery{Kind: world.KindConflict, A: uint64(t), B: conflictWaiting})
	}
}

// maybeReleaseSharedReserve draws whether an engine releases a shared reserve while the memory of one part belongs to
// the engine again and the memory of another part does not.
func (c *Command) maybeReleaseSharedReserve(w *Cluster, n *world.Node) {
	if _, ok := w.DrawStrike(plan.FaultConflictingCommand, c.Name, 2); !ok {
		return
	}
	for _, b := range w.Jobs[c.Job].Batches {
		if b.Put != 0 && !b.memoryReturned {
			w.Commands[b.Put-1].giveConflict(w, n, b.Put, conflictEarly)
			return
		}
	}
}

// giveConflict gives a command that contradicts the command c.
func (c *Command) giveConflict(w *Cluster, n *world.Node, put effects.Ticket, kind int) {
	reserve := w.Jobs[c.Job].Batches[c.Batch].Reserve
	x := Command{Kind: plan.CommandConflict, Job: c.Job, Batch: kind, Target: put}
	switch kind {
	case conflictEarly:
		if c.HasMemoryBack() {
			return // The pages belong to the engine again, which may give them back.
		}
		x.Target = reserve
		x.Body, x.Count = &ops.Release{Reserved: reserve}, uint32(put)
	case conflictUnknown:
		x.Body = &ops.Abort{Target: effects.Ticket(1 << 40)}
	case conflictStale:
		body := *c.Body.(*ops.Put)
		body.Pages = append([]effects.Page(nil), body.Pages...)
		body.Pages[0].Generation += 1 << 40
		body.Last, body.Request = false, nil
		// At times the put also names a request by an id of the greatest length, or longer.
		if d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 20); !draw.IsFixed(w.Seed) && d.ChancePermille(600) {
			body.Request = bytes.Repeat([]byte{'r'}, requestIDMax(n)+int(d.Rehash().Below(2)))
		}
		x.Body = &body
	case conflictEmpty:
		x.Body = &ops.Put{Layout: InfoOf(n).Cfg.Layout}
	case conflictEnded:
		body := *c.Body.(*ops.Put)
		if c.Finished || c.ReturnedEarly || !body.Last || n.ResumeAt > w.Now || len(n.Backlog) > 0 {
			return // The machine may have dropped the request's record by the time it receives the command.
		}
		body.Follow, body.First = 0, 0
		x.Body = &body
	case conflictLate:
		body, endedJob := *c.Body.(*ops.Put), findEndedRequest(w, n)
		if endedJob == nil || c.HasMemoryBack() || n.ResumeAt > w.Now || len(n.Backlog) > 0 {
			return
		}
		body.Request, body.Follow, body.First = endedJob.Name, 0, 0
		x.Body = &body
	case conflictWaiting:
		if c.Finished || n.ResumeAt > w.Now || len(n.Backlog) > 0 {
			return
		}
		x.Body = &ops.Unpin{Got: x.Target}
		if c.Kind == plan.CommandReserve {
			x.Body = &ops.Release{Reserved: x.Target}
		}
	case conflictRole:
		if n.IsReceiver() {
			return // The node has both roles.
		}
		x.Body = &ops.Get{Keys: w.Jobs[c.Job].Keys}
	}
	w.GiveCommand(n, x, 0)
}

// findEndedRequest returns a request of n that has nothing in flight any more and is still in the machine's table, or
// nil if there is no such request.
func findEndedRequest(w *Cluster, n *world.Node) *Job {
	cfg := &InfoOf(n).Cfg
	if cmp.Or(int(cfg.RequestsMax), 4096) < len(w.Jobs) {
		return nil
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if j.Sender != n.ID || j.SenderIncarnation != n.Incarnation || j.OpenPuts > 0 || len(j.Batches) == 0 {
			continue
		}
		last := &j.Batches[len(j.Batches)-1]
		if last.Put == 0 || !last.Accepted || last.Refilled {
			continue
		}
		if c := &w.Commands[last.Put-1]; c.Finished && 2*n.ReadingAt(w.Now).Sub(n.ReadingAt(c.FinishedAt)) < cmp.Or(cfg.RequestTTL,
			30*effects.Second) {
			return j
		}
	}
	return nil
}

var checkConflictCode = oracle.NewCheck("L1", "outcomes of commands that conflict with others")

// checkConflict checks the outcome of a contradicting command.
func (c *Command) checkConflict(w *Cluster, n *world.Node, e *effects.Deliver) {
	wantCode := effects.Invalid
	switch c.Batch {
	case conflictEarly:
		put, reserve := &w.Commands[c.Count-1], &w.Commands[c.Target-1]
		switch {
		case e.Code == effects.OK && !put.HasMemoryBack():
			w.Fail("S19", "node %d takes the pages of ticket %d back while ticket %d may still use them",
				n.AsSubject(), oracle.Ticket(c.Target), oracle.Ticket(c.Count))
			return
		case e.Code == effects.OK:
			// The put ended while the release was in the mailbox.
			OnPagesReleased.Report(&w.Panel, n.ID, PagesReleased{n, c.Target})
			reserve.Released = true
			return
		}
		return // The release was refused, because the pages are in use or already gone.
	case conflictUnknown:
		wantCode = effects.NotFound
	case conflictStale:
		if len(c.Body.(*ops.Put).Request) > requestIDMax(n) {
			wantCode = effects.TooLarge
		}
	case conflictWaiting:
		// The command ended while the release was in the mailbox.
		if wantCode = effects.NotFound; e.Code == effects.OK {
			OnPagesReleased.Report(&w.Panel, n.ID, PagesReleased{n, c.Target})
			w.Commands[c.Target-1].Released = true
			return
		}
	case conflictBetween:
		// The first part may have ended in the step that accepted this part, and the engine may have passed the pages
		// to the cache since then. The engine may not put these pages, and the machine reports that first, before the
		// lack of space.
		if wantCode = effects.TooMany; c.hasLostPages(w) {
			wantCode = effects.Invalid
		}
	case conflictRole:
		wantCode = effects.Unsupported
	case conflictEnded, conflictLate:
		if wantCode = effects.Ended; e.Code == effects.TooMany {
			return // There is no space for the put either.
		}
	}
	if e.Code == effects.TooLarge && n.OffersChunks {
		return // The machine checks the size first.
	}
	if n.Draining || e.Code == effects.Forbidden && LacksOwnTenant(n, c.Body) {
		return
	}
	w.CountJudged(checkConflictCode)
	if e.Code != wantCode {
		w.FailCheck(checkConflictCode, "node %d ends ticket %d, which conflicts with another command, as %s instead of %s",
			n.AsSubject(), oracle.Ticket(e.Ticket), e.Code, wantCode)
	}
}

// requestIDMax returns the greatest length of a request's id.
func requestIDMax(n *world.Node) int { return int(cmp.Or(InfoOf(n).Cfg.RequestIDMax, 128)) }

// hasLostPages reports whether a page of a put no longer belongs to the engine, as the machine knows: the page was
// released or passed to the cache.
func (c *Command) hasLostPages(w *Cluster) bool {
	reserve := w.Jobs[c.Job].Batches[w.Commands[c.Target-1].Batch].Reserve
	return slices.ContainsFunc(w.Commands[reserve:], func(x Command) bool {
		if x.Target != reserve || !x.Finished || x.Code != effects.OK {
			return false
		}
		switch body := x.Body.(type) {
		case *ops.Release:
			return true
		case *ops.Store:
			return slices.ContainsFunc(body.Pages, func(p effects.Page) bool {
				return slices.ContainsFunc(c.Body.(*ops.Put).Pages, func(o effects.Page) bool { return o.Index == p.Index })
			})
		}
		return false
	})
}

// maybeRefill draws whether the engine uses the pages of a failed put again, for the same chunks computed anew. The
// pages belong to the engine since the put's memory was returned. The result is true if the pages are used again.
func (c *Command) maybeRefill(w *Cluster, n *world.Node) bool {
	if c.Code == effects.OK || isRefusedOnArrival(c.Code) || c.isTooLarge(w, n) || n.Draining ||
		!w.IsStruck(plan.FaultPagesRefilled, c.Name, 0) {
		return false
	}
	b := &w.Jobs[c.Job].Batches[c.Batch]
	b.Refilled = true
	reserve := &w.Commands[b.Reserve-1]
	reserve.fillPages(w, n, *b, 0)
	w.QueueForNode(n, draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 4).HeavyTail(3*effects.Millisecond),
		world.Delivery{Kind: world.KindPagesFilled, A: uint64(c.Job), B: uint64(c.Batch)})
	return true
}

// StartDrain makes a node drain in the middle of its work. The process of the node exits after the drain. If twice is
// set, the engine gives the drain two times.
func (w *Cluster) StartDrain(n *world.Node, timeout effects.Duration, twice bool) {
	if !n.Up || n.Leaving {
		return
	}
	n.Leaving = true
	w.Result.CountFault(plan.FaultDrain)
	giveDrain(w, n, timeout)
	if twice {
		giveDrain(w, n, timeout)
	}
}

// giveDrain gives n's machine a Drain with the given timeout.
func giveDrain(w *Cluster, n *world.Node, timeout effects.Duration) {
	w.GiveCommand(n, Command{Kind: plan.CommandDrain, Body: &rank.Drain{Timeout: timeout}}, timeout)
}

// scheduleSecondDrain schedules another drain of a draining node, at about the time when the first drain expires.
func scheduleSecondDrain(w *Cluster, n *world.Node, timeout effects.Duration) {
	late := draw.Hash(w.Seed, draw.Engine, uint64(n.Subject()), 6).Duration(0, 1500*effects.Microsecond)
	w.QueueForNode(n, timeout+late, world.Delivery{Kind: world.KindConflict, A: uint64(len(w.Commands)), B: conflictDrain})
}

// giveQueuedConflict gives the command that was queued to contradict another command.
func giveQueuedConflict(w *Cluster, n *world.Node, d world.Delivery) {
	if d.B != conflictDrain {
		w.Commands[d.A-1].giveConflict(w, n, effects.Ticket(d.A), int(d.B))
	} else if !w.Commands[d.A-1].Finished {
		giveDrain(w, n, effects.Second)
	}
}

var checkDrainEnd = oracle.NewCheck("L6", "drains")

// checkDrain checks the end of a drain. After a drain that ended with OK, nothing may remain in the machine. A drain
// may end as expired only after its whole timeout; the engine may then drain again with a longer timeout.
func (c *Command) checkDrain(w *Cluster, n *world.Node, e *effects.Deliver) {
	if e.Code == effects.Invalid {
		return // The node already drains.
	}
	w.CountJudged(checkDrainEnd)
	listed := 0
	for _, x := range rankOf(n).ListUnfinished() {
		if listed += x.Count; x.Kind == "" {
			w.FailCheck(checkDrainEnd, "node %d does not say of what kind %d things are that its drain has left", n.AsSubject(), x.Count)
		}
	}
	if listed != int(e.Left) {
		w.FailCheck(checkDrainEnd, "node %d lists %d things that its drain has left, and reports %d", n.AsSubject(), listed, e.Left)
	}
	switch {
	case w.Healed && e.Code != effects.OK:
		w.FailCheck(checkDrainEnd, "node %d drains without any fault: %s with %d left", n.AsSubject(), e.Code, e.Left)
		return
	case e.Code != effects.OK && e.Code != effects.Expired:
		w.FailCheck(checkDrainEnd, "node %d ends its drain with %s", n.AsSubject(), e.Code)
		return
	case w.Healed && n.ReadingAt(w.Now)-n.ReadingAt(c.receiptTime(n)) >= effects.Time(c.Timeout):
		w.FailCheck(checkDrainEnd, "node %d drains in a run without faults, and needs the whole timeout", n.AsSubject())
		return
	case e.Code == effects.OK:
		world.OnNodeAtRest.Report(&w.Panel, n.ID, world.NodeAtRest{Node: n, When: "after it drained"})
	case n.ReadingAt(w.Now)-n.ReadingAt(c.receiptTime(n)) < effects.Time(c.Timeout):
		w.FailCheck(checkDrainEnd, "node %d ends the drain of ticket %d as expired before the timeout is over",
			n.AsSubject(), oracle.Ticket(e.Ticket))
		return
	}
	if e.Code == effects.Expired && !w.Healed && c.maybeDrainAgain(w, n) {
		return
	}
	if !w.Healed {
		w.QueueForNode(n, 0, world.Delivery{Kind: world.KindExit})
	}
}

// maybeDrainAgain draws whether an engine drains a node again, with a longer timeout, after a drain that expired. The
// result is true if the engine does.
func (c *Command) maybeDrainAgain(w *Cluster, n *world.Node) bool {
	d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 5)
	if !d.ChancePermille(500) {
		return false
	}
	timeout := c.Timeout + d.Rehash().Duration(10*effects.Millisecond, 500*effects.Millisecond)
	giveDrain(w, n, timeout)
	CountConjunction(&w.Result, DrainRepeated)
	return true
}
