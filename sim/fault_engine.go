package sim

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/rank"
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
	conflictKinds
)

// maybeConflict draws whether an engine contradicts the put that it just gave.
func (w *cluster) maybeConflict(n *world.Node, put effects.Ticket) {
	if d, yes := w.Strikes(plan.FaultConflict, w.commands[put-1].name, 0); yes {
		w.ForNode(n, d.Heavy(10*effects.Millisecond), world.Delivery{Kind: world.KindConflict, A: uint64(put),
			B: d.Again().Below(conflictKinds)})
	}
}

// conflict gives a command that contradicts a put.
func (w *cluster) conflict(put uint64, which int) {
	c := &w.commands[put-1]
	n := w.Nodes[c.node]
	reserve := w.jobs[c.job].batches[c.batch].reserve
	x := command{want: plan.WantConflict, job: c.job, batch: which, target: effects.Ticket(put)}
	switch which {
	case conflictEarly:
		if c.ended() {
			return // The pages are the engine's again, and it may give them back.
		}
		x.target = reserve
		x.body, x.count = &ops.Release{Reserved: reserve}, uint32(put)
	case conflictUnknown:
		x.body = &ops.Abort{Target: effects.Ticket(1 << 40)}
	case conflictStale:
		body := *c.body.(*ops.Put)
		body.Pages = append([]effects.Page(nil), body.Pages...)
		body.Pages[0].Generation += 1 << 40
		body.Last, body.Request = false, nil
		x.body = &body
	case conflictEmpty:
		x.body = &ops.Put{Layout: its(n).cfg.Layout}
	case conflictEnded:
		body := *c.body.(*ops.Put)
		if c.over || c.returned || !body.Last || n.Thaw > w.Now || len(n.Backlog) > 0 {
			return // It may be forgotten by the time the machine hears of this.
		}
		body.Follow, body.First = 0, 0
		x.body = &body
	case conflictRole:
		if n.Receives() {
			return // It has no other role.
		}
		x.body = &ops.Get{Keys: w.jobs[c.job].keys}
	}
	w.give(n, x, 0)
}

// contradicted checks what became of it.
func (w *cluster) contradicted(n *world.Node, e *effects.Deliver, c *command) {
	wanted := effects.Invalid
	switch c.batch {
	case conflictEarly:
		put, reserve := &w.commands[c.count-1], &w.commands[c.target-1]
		switch {
		case e.Code == effects.OK && !put.ended():
			w.Fail("S19", "node %d takes the pages of ticket %d back while ticket %d may still use them",
				n.It(), oracle.Ticket(c.target), oracle.Ticket(c.count))
			return
		case e.Code == effects.OK:
			w.oracles.onRelease(n, c.target) // Its put had ended while this was in the mailbox.
			reserve.released = true
			return
		}
		return // Refused, as in use or as gone already.
	case conflictUnknown:
		wanted = effects.NotFound
	case conflictRole:
		wanted = effects.Unsupported
	case conflictEnded:
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

// refill lets the engine use the pages of a failed put again, for the same chunks made
// anew: they are its own once the put's memory has come back.
func (w *cluster) refill(n *world.Node, put *command) bool {
	if put.code == effects.OK || neverTaken(put.code) || w.tooLarge(n, put) || n.Draining ||
		!w.Struck(plan.FaultRefill, put.name, 0) {
		return false
	}
	b := &w.jobs[put.job].batches[put.batch]
	b.refilled = true
	reserve := &w.commands[b.reserve-1]
	w.fill(n, &w.jobs[put.job], *b, reserve, 0)
	w.ForNode(n, draw.Hash(w.Seed, draw.Engine, uint64(put.name), 4).Heavy(3*effects.Millisecond),
		world.Delivery{Kind: world.KindFilled, A: uint64(put.job), B: uint64(put.batch)})
	return true
}

// leave tells a node in the middle of its work to drain; its process ends when that has.
func (w *cluster) leave(n *world.Node, patience effects.Duration, twice bool) {
	if !n.Up || n.Leaving {
		return
	}
	n.Leaving = true
	w.Result.Fault(plan.FaultDrain)
	w.give(n, command{want: plan.WantDrain, body: &rank.Drain{Patience: patience}}, patience)
	if twice {
		w.give(n, command{want: plan.WantDrain, body: &rank.Drain{Patience: patience}}, patience)
	}
}

// drained is the end of a drain. After one that left nothing, nothing may be left.
func (w *cluster) drained(n *world.Node, e *effects.Deliver) {
	switch {
	case e.Code == effects.Invalid:
		return // It drains already.
	case w.Healed && e.Code != effects.OK:
		w.Fail("L6", "node %d drains without any fault: %s with %d left", n.It(), e.Code, e.Left)
		return
	case e.Code != effects.OK && e.Code != effects.Expired:
		w.Fail("L6", "node %d ends its drain with %s", n.It(), e.Code)
		return
	case e.Code == effects.OK:
		w.oracles.OnQuiet(n, "after it drained")
	}
	if !w.Healed {
		w.ForNode(n, 0, world.Delivery{Kind: world.KindExit})
	}
}
