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

// Engines that contradict themselves. What they ask for must be refused as what it is,
// and must change nothing.

// conflicts are the ways to do so; a draw says which.
const (
	conflictEarly   = iota // a reserve is given back while its put is open
	conflictUnknown        // a release, or an abort, of what never was
	conflictStale          // a put of pages that were given back
	conflictEmpty          // a put or a get of nothing
	conflictRole           // a command of the other role
	conflictEnded          // more of a request whose last batch was put
	conflictLate           // more of another request, whose batches have all ended
	conflictKinds
	conflictWaiting // what a Get or a Reserve gives is given back while it waits
	conflictBetween // between the parts of a call, a put for whose own parts there is never room
	conflictDrain   // a drain of a node that drains already
)

// maybeConflict draws whether an engine contradicts the put that it just gave.
func (c *Command) maybeConflict(w *Cluster, n *world.Node, put effects.Ticket) {
	if d, yes := w.Strikes(plan.FaultConflict, c.Name, 0); yes {
		w.ForNode(n, d.Heavy(10*effects.Millisecond), world.Delivery{Kind: world.KindConflict, A: uint64(put),
			B: d.Again().Below(conflictKinds)})
	}
}

// maybeBetween draws whether an engine gives a put that is refused directly behind the first part of a call.
func (c *Command) maybeBetween(w *Cluster, n *world.Node, first effects.Ticket) {
	if _, yes := w.Strikes(plan.FaultConflict, c.Name, 1); yes {
		body := *c.Body.(*ops.Put)
		body.Last, body.Request, body.Follow = false, nil, 1<<20
		w.Give(n, Command{Want: plan.WantConflict, Job: c.Job, Batch: conflictBetween, Target: first, Body: &body}, 0)
	}
}

// maybeWaiting draws whether an engine gives back what a Get or a Reserve may not have given yet.
func (c *Command) maybeWaiting(w *Cluster, n *world.Node, t effects.Ticket) {
	if w.Seed >= draw.RestlessSeed {
		return // A small world has no time in which it could come later than what it contradicts.
	}
	if d, yes := w.Strikes(plan.FaultConflict, c.Name, 0); yes {
		w.ForNode(n, d.Heavy(3*effects.Millisecond),
			world.Delivery{Kind: world.KindConflict, A: uint64(t), B: conflictWaiting})
	}
}

// maybePartly draws whether an engine gives a reserve back of which one part's memory is its own again, and another's
// is not.
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

// conflict gives a command that contradicts another.
func (c *Command) contradict(w *Cluster, n *world.Node, put effects.Ticket, which int) {
	reserve := w.Jobs[c.Job].Batches[c.Batch].Reserve
	x := Command{Want: plan.WantConflict, Job: c.Job, Batch: which, Target: put}
	switch which {
	case conflictEarly:
		if c.Ended() {
			return // The pages are the engine's again, and it may give them back.
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
			return // It may be forgotten by the time the machine hears of this.
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
			return // It has no other role.
		}
		x.Body = &ops.Get{Keys: w.Jobs[c.Job].Keys}
	}
	w.Give(n, x, 0)
}

// endedAt is a request of n of which nothing is under way any more, and that is remembered still; nil if there is none.
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

// contradicted checks what became of it.
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
			OnReleasing.Report(&w.Panel, n.ID, Releasing{n, c.Target}) // Its put had ended while this was in the mailbox.
			reserve.Released = true
			return
		}
		return // Refused, as in use or as gone already.
	case conflictUnknown:
		wanted = effects.NotFound
	case conflictWaiting:
		if wanted = effects.NotFound; e.Code == effects.OK { // It came to its end while this was in the mailbox.
			OnReleasing.Report(&w.Panel, n.ID, Releasing{n, c.Target})
			w.Commands[c.Target-1].Released = true
			return
		}
	case conflictBetween:
		// The first part may have ended in the step that took it, and its engine handed the pages to the cache since:
		// then they are not the engine's to put, which is told before that there is no room.
		if wanted = effects.TooMany; c.lostPages(w) {
			wanted = effects.Invalid
		}
	case conflictRole:
		wanted = effects.Unsupported
	case conflictEnded, conflictLate:
		if wanted = effects.Ended; e.Code == effects.TooMany {
			return // There is no room for it either.
		}
	}
	if e.Code == effects.TooLarge && n.Pulls {
		return // It is refused for what can be told of it first.
	}
	if e.Code != wanted && !n.Draining {
		w.Fail("L1", "node %d answers ticket %d, which contradicts another, with %s instead of %s",
			n.It(), oracle.Ticket(e.Ticket), e.Code, wanted)
	}
}

// lostPages reports whether a page of a put is no longer its engine's, as the machine knows: it was released, or given
// to the cache.
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

// refill lets the engine use the pages of a failed put again, for the same chunks made
// anew: they are its own once the put's memory has come back.
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

// Leave tells a node in the middle of its work to drain; its process ends when that has.
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

func drain(w *Cluster, n *world.Node, patience effects.Duration) {
	w.Give(n, Command{Want: plan.WantDrain, Body: &rank.Drain{Patience: patience}}, patience)
}

// leaveAgain tells a node that drains once more about when its patience is over.
func leaveAgain(w *Cluster, n *world.Node, patience effects.Duration) {
	late := draw.Hash(w.Seed, draw.Engine, uint64(n.Subject()), 6).Span(0, 1500*effects.Microsecond)
	w.ForNode(n, patience+late, world.Delivery{Kind: world.KindConflict, A: uint64(len(w.Commands)), B: conflictDrain})
}

// contradict gives the command that was queued to contradict another.
func contradict(w *Cluster, n *world.Node, d world.Delivery) {
	if d.B != conflictDrain {
		w.Commands[d.A-1].contradict(w, n, effects.Ticket(d.A), int(d.B))
	} else if !w.Commands[d.A-1].Over {
		drain(w, n, effects.Second)
	}
}

// drained is the end of a drain. After one that left nothing, nothing may be left; one that expired had its patience,
// and an engine may then have more.
func (c *Command) drained(w *Cluster, n *world.Node, e *effects.Deliver) {
	switch {
	case e.Code == effects.Invalid:
		return // It drains already.
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

// again drains a node once more, with more patience, after some drains that have expired.
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
