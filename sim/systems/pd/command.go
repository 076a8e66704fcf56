package pd

import (
	"encoding/binary"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Command is a command that an engine gave. The ticket of a command is the index in Work.Commands plus one.
type Command struct {
	Body        effects.CommandBody
	Kind        plan.CommandKind
	Node        int32
	Incarnation uint32
	Name        plan.Subject // the name of the command in draws
	Job         int
	Batch       int
	Target      effects.Ticket // the command that a release, an unpin or an abort refers to
	Timeout     effects.Duration
	// time by which the Deliver must have arrived, counted from when the machine received the command
	DueAt         int64        `snap:"instant"`
	receivedClock effects.Time // reading of the node's clock when the machine received the command
	frozenAtStart int64        // how long the node had been frozen when the machine received the command, in nanoseconds
	ReceivedStep  uint64       `snap:"skip"` // the step in which the machine received the command
	Finished      bool         // the outcome was delivered, or the node died
	FinishedAt    int64        // time of the delivery of the outcome
	ReturnedEarly bool         // the memory was returned before the outcome
	HoldsMemory   bool         // the outcome held the memory, and a Return is outstanding
	Attached      bool         // the engine is in a process of its own; the flow handles what follows
	Accepted      bool         // for a put: the machine accepted the put and reported that the put has ended
	Code          effects.Code
	Count         uint32
	Pages         []effects.Page
	Released      bool
	StoredPages   int // for a Reserve: number of its pages that a cache has taken over
	Device        world.Device
	// for a fetch: index in the job of the first chunk (Count gives the number of chunks); for a Get: index of the
	// first chunk that is not ready
	From       int
	OfferKept  bool // for a Get: after the newest step, a sender kept an offer of the chunk at From
	Fetch      fetchRecord
	OfferGrant effects.GrantID // for a put: the newest grant under which the pages were offered
}

// Grace is how long after the deadline a command may still take. L1 states this bound. A machine is not responsible for
// a driver that does not call the machine, so late ticks extend the time.
const Grace = 20 * effects.Millisecond

// GiveCommand sends a command to n's machine through the mailbox and returns the ticket.
func (w *Cluster) GiveCommand(n *world.Node, c Command, timeout effects.Duration) effects.Ticket {
	return GiveCommandAfter(w, n, 0, c, timeout)
}

// GiveCommandAfter sends a command to n's machine after delay, and returns the ticket.
func GiveCommandAfter(w *Cluster, n *world.Node, delay effects.Duration, c Command, timeout effects.Duration) effects.Ticket {
	c.Node, c.Incarnation, c.Timeout = n.ID, n.Incarnation, timeout
	counts, request := &w.drainCounts, uint32(0)
	if c.Kind != plan.CommandDrain {
		counts, request = &w.Jobs[c.Job].CommandCounts, w.Jobs[c.Job].requestNumber
	}
	w.stateSums(n, c.Body)
	counts[c.Kind]++
	c.Name = plan.AboutCommand(request, c.Kind, counts[c.Kind])
	t := uint64(w.AddCommand(c))
	if w.TracesPuts {
		switch body := c.Body.(type) {
		case *engine.Put:
			body.Trace = TraceOfPut(n.ID, effects.Ticket(t))
		case *layerwise.Begin:
			body.Trace = TraceOfPut(n.ID, effects.Ticket(t))
		case *recall.Recall:
			body.Trace = TraceOfPut(n.ID, effects.Ticket(t)).Context
		case *p2p.Bring:
			body.Trace = TraceOfPut(n.ID, effects.Ticket(t)).Context
		case *register.Register:
			body.Trace = TraceOfPut(n.ID, effects.Ticket(t))
		case *register.Finished:
			body.Trace = TraceOfPut(n.ID, effects.Ticket(t))
		}
	}
	// A pointer to c would make each c escape to the heap.
	OnCommandGiven.Report(&w.Panel, n.ID, CommandGiven{n, &w.Commands[t-1], effects.Ticket(t)})
	w.UnfinishedCount++
	w.Result.Commands++
	w.QueueForNode(n, delay, world.Delivery{Kind: world.KindCommand, A: t, B: uint64(c.Kind)})
	return effects.Ticket(t)
}

// TraceOfPut returns the trace of a put: another one for each put of a run.
func TraceOfPut(node int32, t effects.Ticket) (x effects.Trace) {
	binary.LittleEndian.PutUint64(x.Context[:], uint64(node)+1)
	binary.LittleEndian.PutUint64(x.Context[8:], uint64(t))
	x.Context[24], x.Parent[0] = 1, byte(t)
	return x
}

// stateSums sets the checksums of the chunks that an engine hands to its machine with a command.
func (w *Cluster) stateSums(n *world.Node, body effects.CommandBody) {
	switch c := body.(type) {
	case *engine.Put:
		w.StateSums(n, c.Pages, 0)
	case *layerwise.Save:
		w.StateSums(n, c.Pages, 0)
	case *layerwise.Finish:
		w.StateSums(n, c.Pages, 0)
	case *engine.Store:
		w.StateSums(n, c.Pages, n.Pool.PageBytes)
	case *engine.Share:
		w.StateSums(n, c.Pages, n.Pool.PageBytes)
	}
}

// ReceiptTime returns a time at or before which n's machine received the command.
func ReceiptTime(c *Command, n *world.Node) int64 { return c.receiptTime(n) }

// TimeLeft returns how much of the time limit of a command is left, by the clock of the node. The result is negative
// after the end of the time.
func TimeLeft(w *Cluster, n *world.Node, c *Command) effects.Duration {
	return c.Timeout - w.ReadClock(n).Sub(c.receivedClock)
}

// receiptTime returns when n's machine received the command.
func (c *Command) receiptTime(n *world.Node) int64 {
	return c.DueAt - int64(n.LongestSpan(c.Timeout)+Grace)
}

// TimeLeft returns how much of the command's time is left by the clock of its node.
func (c *Command) TimeLeft(w *Cluster, n *world.Node) effects.Duration {
	return c.Timeout - w.ReadClock(n).Sub(c.receivedClock)
}

// endsByTimeAlone reports whether nothing but the end of its time can end the command with a code. An attached engine
// states a time of its own, which the agent may shorten.
func (c *Command) endsByTimeAlone(code effects.Code) bool {
	return c.Kind == plan.CommandReserve && code == effects.NoMemory && !c.Attached
}

// VoidCommands ends the commands of n's engine that have no outcome yet, because the incarnation that received these
// commands is gone.
func (w *Cluster) VoidCommands(n *world.Node) {
	for _, t := range w.OpenCommands.Items {
		c := &w.Commands[t-1]
		if c.Node == n.ID && c.Incarnation == n.Incarnation && (!c.Finished || c.HoldsMemory) {
			c.Finished, c.HoldsMemory = true, false
			w.UnfinishedCount--
		}
	}
}

// handleReceipt records that the machine receives a command, and returns the body. The deadline counts from this
// moment.
func (c *Command) handleReceipt(w *Cluster, n *world.Node, t effects.Ticket) effects.CommandBody {
	c.receivedClock = w.ReadClock(n)
	c.DueAt, c.frozenAtStart, c.ReceivedStep = w.Now+int64(n.LongestSpan(c.Timeout)+Grace), n.FrozenTime, n.StepCount+1
	n.Draining = n.Draining || c.Kind == plan.CommandDrain
	if body, ok := c.Body.(*rank.SetTenantShare); ok {
		handleShareReceipt(n, body)
	}
	OnCommandReceived.Report(&w.Panel, n.ID, CommandReceived{n, c, t})
	return c.Body
}

var (
	checkDeadline  = oracle.NewCheck("L1", "outcomes by their deadline")
	checkTimeLimit = oracle.NewCheck("L1", "outcomes that only the time limit explains")
)

// HandleDeliver delivers the outcome of a command to the engine, and checks the outcome.
func (w *Cluster) HandleDeliver(n *world.Node, e *effects.Deliver) {
	c := w.CommandOf(n, e.Ticket)
	switch {
	case c == nil:
		w.Fail("L1", "node %d delivers ticket %d, which no engine gave to it", n.AsSubject(), oracle.Ticket(e.Ticket))
		return
	case c.Finished:
		w.Fail("L1", "node %d delivers ticket %d (%s) twice", n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind)
		return
	case c.ReturnedEarly && (e.Held || len(e.Pages) > 0):
		w.Fail("S8", "node %d delivers ticket %d with memory that it has returned", n.AsSubject(), oracle.Ticket(e.Ticket))
		return
	}
	c.Finished, c.Code, c.HoldsMemory, c.FinishedAt = true, e.Code, e.Held, w.Now
	countOutcome(&w.Result, c.Kind, e.Code)
	w.CountJudged(checkDeadline)
	if late := w.Now - c.DueAt - (n.FrozenTime - c.frozenAtStart); late > 0 {
		w.FailCheck(checkDeadline, "node %d delivers ticket %d (%s) %d ns after its deadline and grace",
			n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind, late)
		return
	}
	if c.endsByTimeAlone(e.Code) {
		w.CountJudged(checkTimeLimit)
		if early := c.TimeLeft(w, n); early > 0 {
			w.FailCheck(checkTimeLimit, "node %d ends ticket %d (%s) as %s %d ns before its time limit", n.AsSubject(),
				oracle.Ticket(e.Ticket), c.Kind, e.Code, early)
			return
		}
	}
	OnCommandOutcome.Report(&w.Panel, n.ID, CommandOutcome{n, e, c})
	if c.Device.Corr != 0 && !e.Held {
		w.Fail("S19", "node %d returns the memory of ticket %d with the outcome while chunks of the command are being scattered", n.AsSubject(),
			oracle.Ticket(e.Ticket))
		return
	}
	flow := w.Flows.kindOf(c)
	if e.Held && c.Kind != plan.CommandPut && (flow == nil || !flow.MayHoldMemory) && c.Device.Corr == 0 {
		w.Fail("L1", "node %d holds the memory of ticket %d, which is not a put", n.AsSubject(), oracle.Ticket(e.Ticket))
		return
	}
	if !e.Held {
		w.UnfinishedCount--
	}
	switch c.Kind {
	case plan.CommandReserve:
		c.handleReserveOutcome(w, n, e)
	case plan.CommandPut:
		c.handlePutOutcome(w, n, e)
	case plan.CommandRelease, plan.CommandUnpin:
		c.checkRelease(w, n, e)
	case plan.CommandGet, plan.CommandLookup:
		c.handleGetOutcome(w, n, e)
	case plan.CommandDrain:
		c.checkDrain(w, n, e)
	case plan.CommandConflict:
		c.checkConflict(w, n, e)
	case plan.CommandContains:
		OnContainsOutcome.Report(&w.Panel, n.ID, ContainsOutcome{n, e, c})
	case plan.CommandFetch:
		c.handleFetchOutcome(w, n, e)
	case WantOfDomain:
		c.handleGetOfDomain(w, n, e)
	case WantTenantShare:
		c.checkShareOutcome(w, n, e)
	case plan.CommandAbort, plan.CommandAbandon:
	}
	if flow != nil && flow.HandleOutcome != nil {
		flow.HandleOutcome(w, n, e, c)
	}
}

// HandleReturn handles the return of a command's memory to the engine. The command's outcome must have held the memory.
func (w *Cluster) HandleReturn(n *world.Node, e *effects.Return) {
	c := w.CommandOf(n, e.Ticket)
	if c == nil || !c.Finished || !c.HoldsMemory {
		w.Fail("L1", "node %d returns the memory of ticket %d, which holds no memory", n.AsSubject(), oracle.Ticket(e.Ticket))
		return
	}
	if c.Device.Corr != 0 {
		w.Fail("S19", "node %d returns the memory of ticket %d while chunks of the command are being scattered", n.AsSubject(),
			oracle.Ticket(e.Ticket))
		return
	}
	c.HoldsMemory = false
	w.UnfinishedCount--
	if c.Kind == plan.CommandPut {
		c.handlePutReturn(w, n, e.Ticket)
	}
	if flow := w.Flows.kindOf(c); flow != nil && flow.HandleReturn != nil {
		flow.HandleReturn(w, n, c)
	}
}

// HasMemoryBack reports whether the memory of the command belongs to the engine again.
func (c *Command) HasMemoryBack() bool { return c.ReturnedEarly || c.Finished && !c.HoldsMemory }

// checkRelease checks that the first release of a ticket succeeds, and that a second release finds nothing.
func (c *Command) checkRelease(w *Cluster, n *world.Node, e *effects.Deliver) {
	target := &w.Commands[c.Target-1]
	switch {
	case e.Code == effects.OK && target.Released:
		w.Fail("S8", "node %d releases ticket %d a second time", n.AsSubject(), oracle.Ticket(c.Target))
	case e.Code != effects.OK && !target.Released:
		w.Fail("S8", "node %d does not release ticket %d: %s", n.AsSubject(), oracle.Ticket(c.Target), e.Code)
	}
	target.Released = true
}

// abortPending gives an Abort for a command that may have ended by the time the Abort arrives.
func (c *Command) abortPending(w *Cluster, t effects.Ticket) {
	if n := w.Nodes[c.Node]; !c.Finished && n.Up {
		w.AbortCommand(n, t)
	}
}

// RequestOfCommand returns the engines' name of the request that a command is for, or nil if the command is for no
// request.
func (w *Cluster) RequestOfCommand(t effects.Ticket) []byte {
	if t == 0 || uint64(t) > uint64(len(w.Commands)) {
		return nil
	}
	c := &w.Commands[t-1]
	switch c.Kind {
	case plan.CommandRelease, plan.CommandUnpin, plan.CommandAbort:
		if c.Target == t {
			return nil
		}
		return w.RequestOfCommand(c.Target)
	case plan.CommandReserve, plan.CommandPut, plan.CommandGet, plan.CommandContains, plan.CommandAbandon, plan.CommandConflict,
		plan.CommandFetch, plan.CommandLookup, WantGiveUp, WantEnd, WantOfDomain:
		return w.Jobs[c.Job].Name
	case plan.CommandDrain, WantTenantShare:
		return nil
	}
	if w.Flows.kindOf(c) != nil {
		return w.Jobs[c.Job].Name
	}
	return nil
}

// fetchRecord holds the ledger's facts about a fetch, except for the chunks that the device code has received.
type fetchRecord struct {
	ReceivedAt int64 `snap:"instant"` // time at which the machine received the fetch
	// set of codes with which the fetch may end, because of an event that affects the fetch or the source pages
	AllowedCodes     uint32
	HadAllChunks     bool // all chunks were available before the step in which the deadline passed
	RequestAbandoned bool // the request was being abandoned at that time
}
