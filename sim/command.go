package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// command is one command that an engine gave, by its ticket.
type command struct {
	body     effects.CommandBody
	want     plan.Want
	node     int32
	life     uint32
	name     plan.Subject // in draws
	job      int
	batch    int
	target   effects.Ticket // of release, unpin, abort
	patience effects.Duration
	due      int64  `snap:"instant"` // its Deliver must have come by then, counted from when the machine got it
	frozen   int64  // how long the node had been frozen at that instant
	step     uint64 `snap:"skip"` // of the machine, in which it got it
	over     bool   // delivered, or died with its node
	outcome  int64  // when it was delivered
	returned bool   // its memory came back before
	copied   bool   // its chunks are, or were, copied to the host pool
	held     bool   // a Return is owed
	joined   bool   // of a put: it was taken, as its end told
	code     effects.Code
	count    uint32
	pages    []effects.Page
	released bool
	device   world.Device
	from     int  // a fetch's first chunk in its job, which has count of them; a Get's next one
	hoped    bool // of a Get: a sender kept that one for it, after the newest step
	asked    asked
	lent     effects.GrantID // of a put: the newest grant that its pages were offered under
}

// grace is how long after its deadline a command may still take: the stated bound of
// L1. A machine owes nothing to a driver that does not call it, so late ticks count.
const grace = 20 * effects.Millisecond

// give hands a command to n's machine through its mailbox.
func (w *cluster) give(n *world.Node, c command, patience effects.Duration) effects.Ticket {
	c.node, c.life, c.patience = n.ID, n.Life, patience
	given, request := &w.given, uint32(0)
	if c.want != plan.WantDrain {
		given, request = &w.jobs[c.job].given, w.jobs[c.job].request
	}
	given[c.want]++
	c.name = plan.AboutCommand(request, c.want, given[c.want])
	t := uint64(w.addCommand(c))
	w.oracles.onGiven(n, &c, effects.Ticket(t))
	w.unfinished++
	w.Result.Commands++
	w.ForNode(n, 0, world.Delivery{Kind: world.KindCommand, A: t, B: uint64(c.want)})
	return effects.Ticket(t)
}

// addCommand gives c its ticket.
func (w *cluster) addCommand(c command) effects.Ticket {
	w.commands = append(w.commands, c)
	t := effects.Ticket(len(w.commands))
	w.undone.Add(t)
	return t
}

// commanded is a command as its machine gets it: its deadline counts from here.
func (w *cluster) commanded(n *world.Node, t effects.Ticket) effects.CommandBody {
	c := &w.commands[t-1]
	c.due, c.frozen, c.step = w.Now+int64(n.Slowest(c.patience)+grace), n.Frozen, n.Steps+1
	n.Draining = n.Draining || c.want == plan.WantDrain
	w.oracles.onCommand(n, c, t)
	return c.body
}

// deliverTo is the outcome of a command at its engine.
func (w *cluster) deliverTo(n *world.Node, e *effects.Deliver) {
	c := w.commandOf(n, e.Ticket)
	switch {
	case c == nil:
		w.Fail("L1", "node %d delivers ticket %d, which it was not given", n.It(), oracle.Ticket(e.Ticket))
		return
	case c.over:
		w.Fail("L1", "node %d delivers ticket %d (%s) twice", n.It(), oracle.Ticket(e.Ticket), c.want)
		return
	case c.returned && (e.Held || len(e.Pages) > 0):
		w.Fail("S8", "node %d delivers ticket %d with memory that it has returned", n.It(), oracle.Ticket(e.Ticket))
		return
	}
	c.over, c.code, c.held, c.outcome = true, e.Code, e.Held, w.Now
	outcome(&w.Result, c.want, e.Code)
	if late := w.Now - c.due - (n.Frozen - c.frozen); late > 0 {
		w.Fail("L1", "node %d delivers ticket %d (%s) %d ns after its deadline and grace",
			n.It(), oracle.Ticket(e.Ticket), c.want, late)
		return
	}
	w.oracles.onOutcome(n, e, c)
	if c.device.Corr != 0 && !e.Held {
		w.Fail("S19", "node %d gives ticket %d its memory while chunks of it are scattered", n.It(), oracle.Ticket(e.Ticket))
		return
	}
	if e.Held && c.want != plan.WantPut && c.want != plan.WantRecall && c.device.Corr == 0 {
		w.Fail("L1", "node %d holds the memory of ticket %d, which is no put", n.It(), oracle.Ticket(e.Ticket))
		return
	}
	if !e.Held {
		w.unfinished--
	}
	switch c.want {
	case plan.WantReserve:
		w.reserved(n, e, c)
	case plan.WantPut:
		w.putEnded(n, e, c)
	case plan.WantRelease, plan.WantUnpin:
		w.released(n, e, c)
	case plan.WantGet, plan.WantLook:
		w.got(n, e, c)
	case plan.WantDrain:
		w.drained(n, e)
	case plan.WantConflict:
		w.contradicted(n, e, c)
	case plan.WantContains:
		w.oracles.onContained(n, e, c)
	case plan.WantFetch:
		w.fetched(n, e, c)
	case plan.WantRecall:
		w.recalled(n, e, c)
	case plan.WantAbort, plan.WantAbandon:
	}
}

func (w *cluster) returnTo(n *world.Node, e *effects.Return) {
	c := w.commandOf(n, e.Ticket)
	if c != nil && !c.over && c.copied && !c.returned {
		c.returned = true
		w.oracles.onCopied(n, e.Ticket)
		w.putReturned(n, c)
		return
	}
	if c == nil || !c.over || !c.held {
		w.Fail("L1", "node %d returns ticket %d, which holds nothing", n.It(), oracle.Ticket(e.Ticket))
		return
	}
	if c.device.Corr != 0 {
		w.Fail("S19", "node %d returns ticket %d while chunks of it are scattered", n.It(), oracle.Ticket(e.Ticket))
		return
	}
	c.held = false
	w.unfinished--
	if c.want == plan.WantPut {
		w.putReturned(n, c)
	}
	if c.want == plan.WantRecall {
		w.recallReturned(n, c)
	}
}

// ended says whether the memory of a command is its engine's again.
func (c *command) ended() bool { return c.returned || c.over && !c.held }

func (w *cluster) commandOf(n *world.Node, t effects.Ticket) *command {
	if t == 0 || uint64(t) > uint64(len(w.commands)) {
		return nil
	}
	if c := &w.commands[t-1]; c.node == n.ID && c.life == n.Life {
		return c
	}
	return nil
}

// released checks that a second release finds nothing.
func (w *cluster) released(n *world.Node, e *effects.Deliver, c *command) {
	target := &w.commands[c.target-1]
	switch {
	case e.Code == effects.OK && target.released:
		w.Fail("S8", "node %d releases ticket %d a second time", n.It(), oracle.Ticket(c.target))
	case e.Code != effects.OK && !target.released:
		w.Fail("S8", "node %d does not release ticket %d: %s", n.It(), oracle.Ticket(c.target), e.Code)
	}
	target.released = true
}

// abort sends an Abort for a command that may have ended.
func (w *cluster) abort(ticket uint64) {
	c := &w.commands[ticket-1]
	if c.over || !w.Nodes[c.node].Up {
		return
	}
	w.giveAbort(w.Nodes[c.node], effects.Ticket(ticket))
}
