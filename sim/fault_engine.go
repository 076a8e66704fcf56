package sim

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/receiver"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
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
func (w *world) maybeConflict(n *node, put effects.Ticket) {
	if d, yes := w.strikes(plan.FaultConflict, w.commands[put-1].name, 0); yes {
		w.forNode(n, d.Heavy(10*effects.Millisecond), delivery{kind: kindConflict, a: uint64(put),
			b: d.Again().Below(conflictKinds)})
	}
}

// conflict gives a command that contradicts a put.
func (w *world) conflict(put uint64, which int) {
	c := &w.commands[put-1]
	n := w.nodes[c.node]
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
		x.body = &ops.Put{Layout: n.cfg.Layout}
	case conflictEnded:
		body := *c.body.(*ops.Put)
		if c.over || c.returned || !body.Last || n.thaw > w.now || len(n.backlog) > 0 {
			return // It may be forgotten by the time the machine hears of this.
		}
		body.Follow, body.First = 0, 0
		x.body = &body
	case conflictRole:
		if n.receives() {
			return // It has no other role.
		}
		x.body = &receiver.Get{Keys: w.jobs[c.job].keys}
	}
	w.give(n, x, 0)
}

// contradicted checks what became of it.
func (w *world) contradicted(n *node, e *effects.Deliver, c *command) {
	wanted := effects.Invalid
	switch c.batch {
	case conflictEarly:
		put, reserve := &w.commands[c.count-1], &w.commands[c.target-1]
		switch {
		case e.Code == effects.OK && !put.ended():
			w.fail("S19", "node %d takes the pages of ticket %d back while ticket %d may still use them",
				n.it(), oracle.Ticket(c.target), oracle.Ticket(c.count))
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
	if e.Code == effects.TooLarge && n.pulls {
		return // It is refused for what can be told of it first.
	}
	if e.Code != wanted && !n.draining {
		w.fail("L1", "node %d answers ticket %d, which contradicts another, with %s instead of %s",
			n.it(), oracle.Ticket(e.Ticket), e.Code, wanted)
	}
}

// refill lets the engine use the pages of a failed put again, for the same chunks made
// anew: they are its own once the put's memory has come back.
func (w *world) refill(n *node, put *command) bool {
	if put.code == effects.OK || neverTaken(put.code) || w.tooLarge(n, put) || n.draining ||
		!w.struck(plan.FaultRefill, put.name, 0) {
		return false
	}
	b := &w.jobs[put.job].batches[put.batch]
	b.refilled = true
	reserve := &w.commands[b.reserve-1]
	w.fill(n, &w.jobs[put.job], *b, reserve, 0)
	w.forNode(n, draw.Hash(w.seed, draw.Engine, uint64(put.name), 4).Heavy(3*effects.Millisecond),
		delivery{kind: kindFilled, a: uint64(put.job), b: uint64(put.batch)})
	return true
}

// leave tells a node in the middle of its work to drain; its process ends when that has.
func (w *world) leave(n *node, patience effects.Duration, twice bool) {
	if !n.up || n.leaving {
		return
	}
	n.leaving = true
	w.result.fault(plan.FaultDrain)
	w.give(n, command{want: plan.WantDrain, body: &rank.Drain{Patience: patience}}, patience)
	if twice {
		w.give(n, command{want: plan.WantDrain, body: &rank.Drain{Patience: patience}}, patience)
	}
}

// drained is the end of a drain. After one that left nothing, nothing may be left.
func (w *world) drained(n *node, e *effects.Deliver) {
	switch {
	case e.Code == effects.Invalid:
		return // It drains already.
	case w.healed && e.Code != effects.OK:
		w.fail("L6", "node %d drains without any fault: %s with %d left", n.it(), e.Code, e.Left)
		return
	case e.Code != effects.OK && e.Code != effects.Expired:
		w.fail("L6", "node %d ends its drain with %s", n.it(), e.Code)
		return
	case e.Code == effects.OK:
		w.oracles.onQuiet(n, "after it drained")
	}
	if !w.healed {
		w.forNode(n, 0, delivery{kind: kindExit})
	}
}
