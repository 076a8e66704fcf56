package pd

import (
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
	if d, yes := w.Strikes(plan.FaultConflict, c.Name, 0); yes {
		w.ForNode(n, d.Heavy(10*effects.Millisecond), world.Delivery{Kind: world.KindConflict, A: uint64(put),
			B: d.Again().Below(conflictKinds)})
	}
}

// maybeBetween draws whether an engine gives a put that must be refused directly after the first part of a call.
func (c *Command) maybeBetween(w *Cluster, n *world.Node, first effects.Ticket) {
	if _, yes := w.Strikes(plan.FaultConflict, c.Name, 1); yes {
		body := *c.Body.(*ops.Put)
		body.Last, body.Request, body.Follow = false, nil, 1<<20
		w.Give(n, Command{Want: plan.WantConflict, Job: c.Job, Batch: conflictBetween, Target: first, Body: &body}, 0)
	}
}

// maybeWaiting draws whether an engine gives back the pages of a Get or a Reserve before their delivery.
func (c *Command) maybeWaiting(w *Cluster, n *world.Node, t effects.Ticket) {
	if w.Seed >= draw.RestlessSeed {
		return // A small world has no time in which the release could arrive after the command that it contradicts.
	}
	if d, yes := w.Strikes(plan.FaultConflict, c.Name, 0); yes {
		w.ForNode(n, d.Heavy(3*effects.Millisecond),
			world.Delivery{Kind: world.KindConflict, A: uint64(t), B: conflictWaiting})
	}
}

// maybePartly draws whether an engine releases a shared reserve while the memory of one part belongs to the engine
// again and the memory of another part does not.
func (c *Command) maybePartly(w *Cluster, n *world.Node) {
	if _, yes := w.Strikes(plan.FaultConflict, c.Name, 2); !yes {
		return
	}
	for _, b := range w.Jobs[c.Job].Batches {
		if b.Put != 0 && !b.back {
			w.Commands[b.Put-1].contradict(w, n, b.Put, conflictEarly)
			return
		}
	}
}

// contradict gives a command that contradicts the command c.
func (c *Command) contradict(w *Cluster, n *world.Node, put effects.Ticket, which int) {
	reserve := w.Jobs[c.Job].Batches[c.Batch].Reserve
	x := Command{Want: plan.WantConflict, Job: c.Job, Batch: which, Target: put}
	switch which {
	case conflictEarly:
		if c.Ended() {
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
		x.Body = &body
	case conflictEmpty:
		x.Body = &ops.Put{Layout: Its(n).Cfg.Layout}
	case conflictEnded:
		body := *c.Body.(*ops.Put)
		if c.Over || c.Returned || !body.Last || n.Thaw > w.Now || len(n.Backlog) > 0 {
			return // The machine may have dropped the request's record by the time it receives the command.
		}
		body.Follow, body.First = 0, 0
		x.Body = &body
	case conflictLate:
		body, other := *c.Body.(*ops.Put), endedAt(w, n)
		if other == nil || c.Ended() || n.Thaw > w.Now || len(n.Backlog) > 0 {
			return
		}
		body.Request, body.Follow, body.First = other.Name, 0, 0
		x.Body = &body
	case conflictWaiting:
		if c.Over || n.Thaw > w.Now || len(n.Backlog) > 0 {
			return
		}
		x.Body = &ops.Unpin{Got: x.Target}
		if c.Want == plan.WantReserve {
			x.Body = &ops.Release{Reserved: x.Target}
		}
	case conflictRole:
		if n.Receives() {
			return // The node has both roles.
		}
		x.Body = &ops.Get{Keys: w.Jobs[c.Job].Keys}
	}
	w.Give(n, x, 0)
}

// endedAt returns a request of n that has nothing in flight any more and is still in the machine's table, or nil if
// there is no such request.
func endedAt(w *Cluster, n *world.Node) *Job {
	cfg := &Its(n).Cfg
	if cmp.Or(int(cfg.RequestsMax), 4096) < len(w.Jobs) {
		return nil
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if j.Sender != n.ID || j.Life != n.Life || j.Puts > 0 || len(j.Batches) == 0 {
			continue
		}
		last := &j.Batches[len(j.Batches)-1]
		if last.Put == 0 || !last.Joined || last.Refilled {
			continue
		}
		if c := &w.Commands[last.Put-1]; c.Over && 2*n.Shows(w.Now).Sub(n.Shows(c.Outcome)) < cmp.Or(cfg.RequestTTL,
			30*effects.Second) {
			return j
		}
	}
	return nil
}

// contradicted checks the outcome of a contradicting command.
func (c *Command) contradicted(w *Cluster, n *world.Node, e *effects.Deliver) {
	wanted := effects.Invalid
	switch c.Batch {
	case conflictEarly:
		put, reserve := &w.Commands[c.Count-1], &w.Commands[c.Target-1]
		switch {
		case e.Code == effects.OK && !put.Ended():
			w.Fail("S19", "node %d takes the pages of ticket %d back while ticket %d may still use them",
				n.It(), oracle.Ticket(c.Target), oracle.Ticket(c.Count))
			return
		case e.Code == effects.OK:
			// The put ended while the release was in the mailbox.
			OnReleasing.Report(&w.Panel, n.ID, Releasing{n, c.Target})
			reserve.Released = true
			return
		}
		return // The release was refused, because the pages are in use or already gone.
	case conflictUnknown:
		wanted = effects.NotFound
	case conflictWaiting:
		// The command ended while the release was in the mailbox.
		if wanted = effects.NotFound; e.Code == effects.OK {
			OnReleasing.Report(&w.Panel, n.ID, Releasing{n, c.Target})
			w.Commands[c.Target-1].Released = true
			return
		}
	case conflictBetween:
		// The first part may have ended in the step that accepted this part, and the engine may have passed the pages
		// to the cache since then. The engine may not put these pages, and the machine reports that first, before the
		// lack of space.
		if wanted = effects.TooMany; c.lostPages(w) {
			wanted = effects.Invalid
		}
	case conflictRole:
		wanted = effects.Unsupported
	case conflictEnded, conflictLate:
		if wanted = effects.Ended; e.Code == effects.TooMany {
			return // There is no space for the put either.
		}
	}
	if e.Code == effects.TooLarge && n.Pulls {
		return // The machine checks the size first.
	}
	if e.Code != wanted && !n.Draining {
		w.Fail("L1", "node %d answers ticket %d, which contradicts another, with %s instead of %s",
			n.It(), oracle.Ticket(e.Ticket), e.Code, wanted)
	}
}

// lostPages reports whether a page of a put no longer belongs to the engine, as the machine knows: the page was
// released or passed to the cache.
func (c *Command) lostPages(w *Cluster) bool {
	reserve := w.Jobs[c.Job].Batches[w.Commands[c.Target-1].Batch].Reserve
	return slices.ContainsFunc(w.Commands[reserve:], func(x Command) bool {
		if x.Target != reserve || !x.Over || x.Code != effects.OK {
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

// refill draws whether the engine uses the pages of a failed put again, for the same chunks computed anew. The pages
// belong to the engine since the put's memory was returned. The result is true if the pages are used again.
func (c *Command) refill(w *Cluster, n *world.Node) bool {
	if c.Code == effects.OK || neverTaken(c.Code) || c.tooLarge(w, n) || n.Draining ||
		!w.Struck(plan.FaultRefill, c.Name, 0) {
		return false
	}
	b := &w.Jobs[c.Job].Batches[c.Batch]
	b.Refilled = true
	reserve := &w.Commands[b.Reserve-1]
	reserve.fill(w, n, *b, 0)
	w.ForNode(n, draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 4).Heavy(3*effects.Millisecond),
		world.Delivery{Kind: world.KindFilled, A: uint64(c.Job), B: uint64(c.Batch)})
	return true
}

// Leave makes a node drain in the middle of its work. The process of the node exits after the drain. If twice is set,
// the engine gives the drain two times.
func (w *Cluster) Leave(n *world.Node, patience effects.Duration, twice bool) {
	if !n.Up || n.Leaving {
		return
	}
	n.Leaving = true
	w.Result.Fault(plan.FaultDrain)
	drain(w, n, patience)
	if twice {
		drain(w, n, patience)
	}
}

// drain gives n's machine a Drain with the given timeout.
func drain(w *Cluster, n *world.Node, patience effects.Duration) {
	w.Give(n, Command{Want: plan.WantDrain, Body: &rank.Drain{Patience: patience}}, patience)
}

// leaveAgain schedules another drain of a draining node, at about the time when the first drain expires.
func leaveAgain(w *Cluster, n *world.Node, patience effects.Duration) {
	late := draw.Hash(w.Seed, draw.Engine, uint64(n.Subject()), 6).Span(0, 1500*effects.Microsecond)
	w.ForNode(n, patience+late, world.Delivery{Kind: world.KindConflict, A: uint64(len(w.Commands)), B: conflictDrain})
}

// contradict gives the command that was queued to contradict another command.
func contradict(w *Cluster, n *world.Node, d world.Delivery) {
	if d.B != conflictDrain {
		w.Commands[d.A-1].contradict(w, n, effects.Ticket(d.A), int(d.B))
	} else if !w.Commands[d.A-1].Over {
		drain(w, n, effects.Second)
	}
}

// drained checks the end of a drain. After a drain that ended with OK, nothing may remain in the machine. A drain may
// end as expired only after its whole timeout; the engine may then drain again with a longer timeout.
func (c *Command) drained(w *Cluster, n *world.Node, e *effects.Deliver) {
	switch {
	case e.Code == effects.Invalid:
		return // The node already drains.
	case w.Healed && e.Code != effects.OK:
		w.Fail("L6", "node %d drains without any fault: %s with %d left", n.It(), e.Code, e.Left)
		return
	case e.Code != effects.OK && e.Code != effects.Expired:
		w.Fail("L6", "node %d ends its drain with %s", n.It(), e.Code)
		return
	case w.Healed && n.Shows(w.Now)-n.Shows(c.begun(n)) >= effects.Time(c.Patience):
		w.Fail("L6", "node %d drains without any fault, and ends that with its patience", n.It())
		return
	case e.Code == effects.OK:
		world.OnRested.Report(&w.Panel, n.ID, world.Rested{Node: n, When: "after it drained"})
	case n.Shows(w.Now)-n.Shows(c.begun(n)) < effects.Time(c.Patience):
		w.Fail("L6", "node %d ends the drain of ticket %d as expired, and its patience is not over",
			n.It(), oracle.Ticket(e.Ticket))
		return
	}
	if e.Code == effects.Expired && !w.Healed && c.again(w, n) {
		return
	}
	if !w.Healed {
		w.ForNode(n, 0, world.Delivery{Kind: world.KindExit})
	}
}

// again draws whether an engine drains a node again, with a longer timeout, after a drain that expired. The result is
// true if the engine does.
func (c *Command) again(w *Cluster, n *world.Node) bool {
	d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 5)
	if !d.Permille(500) {
		return false
	}
	patience := c.Patience + d.Again().Span(10*effects.Millisecond, 500*effects.Millisecond)
	drain(w, n, patience)
	Met(&w.Result, DrainedAgain)
	return true
}
