package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Command is one command that an engine gave, by its ticket.
type Command struct {
	Body     effects.CommandBody
	Want     plan.Want
	Node     int32
	Life     uint32
	Name     plan.Subject // in draws
	Job      int
	Batch    int
	Target   effects.Ticket // of release, unpin, abort
	Patience effects.Duration
	Due      int64  `snap:"instant"` // its Deliver must have come by then, counted from when the machine got it
	frozen   int64  // how long the node had been frozen at that instant
	Step     uint64 `snap:"skip"` // of the machine, in which it got it
	Over     bool   // delivered, or died with its node
	Outcome  int64  // when it was delivered
	Returned bool   // its memory came back before
	Held     bool   // a Return is owed
	Attached bool   // it is of an engine in a process of its own, which sees to what follows
	Joined   bool   // of a put: it was taken, as its end told
	Code     effects.Code
	Count    uint32
	Pages    []effects.Page
	Released bool
	Stored   int // of a Reserve: pages that are a cache's by now
	Device   world.Device
	From     int  // a fetch's first chunk in its job, which has count of them; a Get's next one
	Hoped    bool // of a Get: a sender kept that one for it, after the newest step
	Asked    asked
	Lent     effects.GrantID // of a put: the newest grant that its pages were offered under
}

// Grace is how long after its deadline a command may still take: the stated bound of L1. A machine owes nothing to a
// driver that does not call it, so late ticks count.
const Grace = 20 * effects.Millisecond

// Give hands a command to n's machine through its mailbox.
func (w *Cluster) Give(n *world.Node, c Command, patience effects.Duration) effects.Ticket {
	return GiveIn(w, n, 0, c, patience)
}

// GiveIn does so in a while.
func GiveIn(w *Cluster, n *world.Node, in effects.Duration, c Command, patience effects.Duration) effects.Ticket {
	c.Node, c.Life, c.Patience = n.ID, n.Life, patience
	given, request := &w.given, uint32(0)
	if c.Want != plan.WantDrain {
		given, request = &w.Jobs[c.Job].Given, w.Jobs[c.Job].request
	}
	given[c.Want]++
	c.Name = plan.AboutCommand(request, c.Want, given[c.Want])
	t := uint64(w.AddCommand(c))
	OnGiven.Report(&w.Panel, n.ID, Given{n, &w.Commands[t-1], effects.Ticket(t)}) // A pointer to c would have each c allocated.
	w.Unfinished++
	w.Result.Commands++
	w.ForNode(n, in, world.Delivery{Kind: world.KindCommand, A: t, B: uint64(c.Want)})
	return effects.Ticket(t)
}

// Begun is when n's machine got a command, or before that.
func Begun(c *Command, n *world.Node) int64 { return c.begun(n) }

// begun is when n's machine got it.
func (c *Command) begun(n *world.Node) int64 { return c.Due - int64(n.Slowest(c.Patience)+Grace) }

// VoidCommands ends the commands of n's engine that have no outcome yet: the incarnation that it gave them to is gone.
func (w *Cluster) VoidCommands(n *world.Node) {
	for _, t := range w.Undone.Some {
		c := &w.Commands[t-1]
		if c.Node == n.ID && c.Life == n.Life && (!c.Over || c.Held) {
			c.Over, c.Held = true, false
			w.Unfinished--
		}
	}
}

// commanded is a command as its machine gets it: its deadline counts from here.
func (c *Command) commanded(w *Cluster, n *world.Node, t effects.Ticket) effects.CommandBody {
	c.Due, c.frozen, c.Step = w.Now+int64(n.Slowest(c.Patience)+Grace), n.Frozen, n.Steps+1
	n.Draining = n.Draining || c.Want == plan.WantDrain
	OnCommanded.Report(&w.Panel, n.ID, Commanded{n, c, t})
	return c.Body
}

// deliverTo is the outcome of a command at its engine.
func (w *Cluster) deliverTo(n *world.Node, e *effects.Deliver) {
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

func (w *Cluster) returnTo(n *world.Node, e *effects.Return) {
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

// Ended says whether the memory of a command is its engine's again.
func (c *Command) Ended() bool { return c.Returned || c.Over && !c.Held }

// released checks that a second release finds nothing.
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

// abort sends an Abort for a command that may have ended.
func (c *Command) abort(w *Cluster, t effects.Ticket) {
	if n := w.Nodes[c.Node]; !c.Over && n.Up {
		w.GiveAbort(n, t)
	}
}

// RequestOf is the engines' name of the request that a command is for; nil if it is for none.
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

// asked is what the ledger knows of a fetch besides what its device code has got.
type asked struct {
	At     int64  `snap:"instant"` // when its machine got it
	Excuse uint32 // codes that something which happened to it, or to what it reads, can end it with
	Had    bool   // all of its chunks were to be had before the step in which its time was over
	Vain   bool   // its request was being abandoned then
}
