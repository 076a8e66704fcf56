package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Command is a command that an engine gave. The ticket of a command is the index in Work.Commands plus one.
type Command struct {
	Body     effects.CommandBody
	Want     plan.Want
	Node     int32
	Life     uint32
	Name     plan.Subject // the name of the command in draws
	Job      int
	Batch    int
	Target   effects.Ticket // the command that a release, an unpin or an abort refers to
	Patience effects.Duration
	// time by which the Deliver must have arrived, counted from when the machine received the command
	Due      int64  `snap:"instant"`
	frozen   int64  // how long the node had been frozen when the machine received the command, in nanoseconds
	Step     uint64 `snap:"skip"` // the step in which the machine received the command
	Over     bool   // the outcome was delivered, or the node died
	Outcome  int64  // time of the delivery of the outcome
	Returned bool   // the memory was returned before the outcome
	Held     bool   // the outcome held the memory, and a Return is outstanding
	Attached bool   // the engine is in a process of its own; the flow handles what follows
	Joined   bool   // for a put: the machine accepted the put and reported that the put has ended
	Code     effects.Code
	Count    uint32
	Pages    []effects.Page
	Released bool
	Stored   int // for a Reserve: number of its pages that a cache has taken over
	Device   world.Device
	// for a fetch: index in the job of the first chunk (Count gives the number of chunks); for a Get: index of the
	// first chunk that is not ready
	From  int
	Hoped bool // for a Get: after the newest step, a sender kept an offer of the chunk at From
	Asked asked
	Lent  effects.GrantID // for a put: the newest grant under which the pages were offered
}

// Grace is how long after the deadline a command may still take. L1 states this bound. A machine is not responsible for
// a driver that does not call the machine, so late ticks extend the time.
const Grace = 20 * effects.Millisecond

// Give sends a command to n's machine through the mailbox and returns the ticket.
func (w *Cluster) Give(n *world.Node, c Command, patience effects.Duration) effects.Ticket {
	return GiveIn(w, n, 0, c, patience)
}

// GiveIn sends a command to n's machine after the time in, and returns the ticket.
func GiveIn(w *Cluster, n *world.Node, in effects.Duration, c Command, patience effects.Duration) effects.Ticket {
	c.Node, c.Life, c.Patience = n.ID, n.Life, patience
	given, request := &w.given, uint32(0)
	if c.Want != plan.WantDrain {
		given, request = &w.Jobs[c.Job].Given, w.Jobs[c.Job].request
	}
	given[c.Want]++
	c.Name = plan.AboutCommand(request, c.Want, given[c.Want])
	t := uint64(w.AddCommand(c))
	// A pointer to c would make each c escape to the heap.
	OnGiven.Report(&w.Panel, n.ID, Given{n, &w.Commands[t-1], effects.Ticket(t)})
	w.Unfinished++
	w.Result.Commands++
	w.ForNode(n, in, world.Delivery{Kind: world.KindCommand, A: t, B: uint64(c.Want)})
	return effects.Ticket(t)
}

// Begun returns a time at or before which n's machine received the command.
func Begun(c *Command, n *world.Node) int64 { return c.begun(n) }

// begun returns when n's machine received the command.
func (c *Command) begun(n *world.Node) int64 { return c.Due - int64(n.Slowest(c.Patience)+Grace) }

// VoidCommands ends the commands of n's engine that have no outcome yet, because the incarnation that received these
// commands is gone.
func (w *Cluster) VoidCommands(n *world.Node) {
	for _, t := range w.Undone.Some {
		c := &w.Commands[t-1]
		if c.Node == n.ID && c.Life == n.Life && (!c.Over || c.Held) {
			c.Over, c.Held = true, false
			w.Unfinished--
		}
	}
}

// commanded records that the machine receives a command, and returns the body. The deadline counts from this moment.
func (c *Command) commanded(w *Cluster, n *world.Node, t effects.Ticket) effects.CommandBody {
	c.Due, c.frozen, c.Step = w.Now+int64(n.Slowest(c.Patience)+Grace), n.Frozen, n.Steps+1
	n.Draining = n.Draining || c.Want == plan.WantDrain
	OnCommanded.Report(&w.Panel, n.ID, Commanded{n, c, t})
	return c.Body
}

// Delivered delivers the outcome of a command to the engine, and checks the outcome.
func (w *Cluster) Delivered(n *world.Node, e *effects.Deliver) {
	c := w.CommandOf(n, e.Ticket)
	switch {
	case c == nil:
		w.Fail("L1", "node %d delivers ticket %d, which it was not given", n.It(), oracle.Ticket(e.Ticket))
		return
	case c.Over:
		w.Fail("L1", "node %d delivers ticket %d (%s) twice", n.It(), oracle.Ticket(e.Ticket), c.Want)
		return
	case c.Returned && (e.Held || len(e.Pages) > 0):
		w.Fail("S8", "node %d delivers ticket %d with memory that it has returned", n.It(), oracle.Ticket(e.Ticket))
		return
	}
	c.Over, c.Code, c.Held, c.Outcome = true, e.Code, e.Held, w.Now
	outcome(&w.Result, c.Want, e.Code)
	if late := w.Now - c.Due - (n.Frozen - c.frozen); late > 0 {
		w.Fail("L1", "node %d delivers ticket %d (%s) %d ns after its deadline and grace",
			n.It(), oracle.Ticket(e.Ticket), c.Want, late)
		return
	}
	OnOutcome.Report(&w.Panel, n.ID, Outcome{n, e, c})
	if c.Device.Corr != 0 && !e.Held {
		w.Fail("S19", "node %d gives ticket %d its memory while chunks of it are scattered", n.It(), oracle.Ticket(e.Ticket))
		return
	}
	flow := w.Flows.of(c)
	if e.Held && c.Want != plan.WantPut && (flow == nil || !flow.Holds) && c.Device.Corr == 0 {
		w.Fail("L1", "node %d holds the memory of ticket %d, which is no put", n.It(), oracle.Ticket(e.Ticket))
		return
	}
	if !e.Held {
		w.Unfinished--
	}
	switch c.Want {
	case plan.WantReserve:
		c.reserved(w, n, e)
	case plan.WantPut:
		c.putEnded(w, n, e)
	case plan.WantRelease, plan.WantUnpin:
		c.released(w, n, e)
	case plan.WantGet, plan.WantLook:
		c.got(w, n, e)
	case plan.WantDrain:
		c.drained(w, n, e)
	case plan.WantConflict:
		c.contradicted(w, n, e)
	case plan.WantContains:
		OnContained.Report(&w.Panel, n.ID, Contained{n, e, c})
	case plan.WantFetch:
		c.fetched(w, n, e)
	case plan.WantAbort, plan.WantAbandon:
	}
	if flow != nil && flow.Ended != nil {
		flow.Ended(w, n, e, c)
	}
}

// Returned handles the return of a command's memory to the engine. The command's outcome must have held the memory.
func (w *Cluster) Returned(n *world.Node, e *effects.Return) {
	c := w.CommandOf(n, e.Ticket)
	if c == nil || !c.Over || !c.Held {
		w.Fail("L1", "node %d returns ticket %d, which holds nothing", n.It(), oracle.Ticket(e.Ticket))
		return
	}
	if c.Device.Corr != 0 {
		w.Fail("S19", "node %d returns ticket %d while chunks of it are scattered", n.It(), oracle.Ticket(e.Ticket))
		return
	}
	c.Held = false
	w.Unfinished--
	if c.Want == plan.WantPut {
		c.putReturned(w, n, e.Ticket)
	}
	if flow := w.Flows.of(c); flow != nil && flow.Returned != nil {
		flow.Returned(w, n, c)
	}
}

// Ended reports whether the memory of the command belongs to the engine again.
func (c *Command) Ended() bool { return c.Returned || c.Over && !c.Held }

// released checks that the first release of a ticket succeeds, and that a second release finds nothing.
func (c *Command) released(w *Cluster, n *world.Node, e *effects.Deliver) {
	target := &w.Commands[c.Target-1]
	switch {
	case e.Code == effects.OK && target.Released:
		w.Fail("S8", "node %d releases ticket %d a second time", n.It(), oracle.Ticket(c.Target))
	case e.Code != effects.OK && !target.Released:
		w.Fail("S8", "node %d does not release ticket %d: %s", n.It(), oracle.Ticket(c.Target), e.Code)
	}
	target.Released = true
}

// abort gives an Abort for a command that may have ended by the time the Abort arrives.
func (c *Command) abort(w *Cluster, t effects.Ticket) {
	if n := w.Nodes[c.Node]; !c.Over && n.Up {
		w.GiveAbort(n, t)
	}
}

// RequestOf returns the engines' name of the request that a command is for, or nil if the command is for no request.
func (w *Cluster) RequestOf(t effects.Ticket) []byte {
	if t == 0 || uint64(t) > uint64(len(w.Commands)) {
		return nil
	}
	c := &w.Commands[t-1]
	switch c.Want {
	case plan.WantRelease, plan.WantUnpin, plan.WantAbort:
		if c.Target == t {
			return nil
		}
		return w.RequestOf(c.Target)
	case plan.WantReserve, plan.WantPut, plan.WantGet, plan.WantContains, plan.WantAbandon, plan.WantConflict,
		plan.WantFetch, plan.WantLook, WantGiveUp, WantEnd:
		return w.Jobs[c.Job].Name
	case plan.WantDrain:
		return nil
	}
	if w.Flows.of(c) != nil {
		return w.Jobs[c.Job].Name
	}
	return nil
}

// asked holds the ledger's facts about a fetch, except for the chunks that the device code has received.
type asked struct {
	At int64 `snap:"instant"` // time at which the machine received the fetch
	// set of codes with which the fetch may end, because of an event that affects the fetch or the source pages
	Excuse uint32
	Had    bool // all chunks were available before the step in which the deadline passed
	Vain   bool // the request was being abandoned at that time
}
