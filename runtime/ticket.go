package runtime

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kvferry/kvferry/effects"
)

// An Outcome is the result of a command.
type Outcome struct {
	Code effects.Code
	// InUse says that the pages of the command may still be accessed; Ticket.Returned reports the end of that.
	InUse     bool
	Pages     []effects.Page // pages that the command took or gave back, in the order of the command
	Sent      int            // Put: number of chunks that this command wrote
	Skipped   int            // Put: number of chunks that the peer already had
	Hits      int            // Get, Contains: chunks of the usable prefix; Fetch: all chunks, if the Fetch succeeded
	Remaining int            // Drain: number of items that are still open
	Details   *effects.Why   // details of Code; nil if there are none
	Started   bool           // a Fetch that failed after it started: the offers for it are given up
}

// A Ticket represents one command in progress.
type Ticket struct {
	id        effects.Ticket
	op        string
	done      chan Outcome  // receives exactly one outcome
	returned  chan struct{} // closed when nothing accesses the command's memory any more
	inUse     bool          // the outcome is delivered, but the memory is still in use; guarded by the ticketTable
	scatter   *scatterer    // of a Fetch; nil for other commands
	group     *commandGroup // group that the command is part of; nil if the command is alone
	onOutcome func(Outcome) // called with the outcome; must not block; nil: not called
	startedAt effects.Time  // when the command began; 0 if nobody measures the time of commands
	onEnd     CommandTimer
}

// A CommandTimer is called with each command that has ended: the call that began it, such as "put", the code of its
// outcome, and the time from the call to the outcome. It is called by the goroutine that steps the machine, so it must
// not block.
type CommandTimer func(call string, code effects.Code, took time.Duration)

// ID returns the number by which an Abort or Release command names this command.
func (t *Ticket) ID() effects.Ticket { return t.id }

// Done returns a channel that delivers the one outcome. The outcome always arrives, because every command has a
// deadline.
func (t *Ticket) Done() <-chan Outcome { return t.done }

// Returned returns a channel that is closed when nothing accesses the command's memory any more: together with the
// outcome or, if Outcome.InUse is set, later.
func (t *Ticket) Returned() <-chan struct{} { return t.returned }

// markReturned records that nothing accesses the command's memory any more.
func (t *Ticket) markReturned() {
	close(t.returned)
	if t.group != nil {
		t.group.markReturned()
	}
}

// deliverOutcome delivers the one outcome. Without Outcome.InUse, the memory is marked as returned before the outcome
// is delivered, so that the receiver of the outcome may check isReturned.
func (t *Ticket) deliverOutcome(out Outcome) {
	if t.scatter != nil {
		t.scatter.cancel()
	}
	if !out.InUse {
		t.markReturned()
	}
	t.done <- out
	if t.onEnd != nil {
		t.onEnd(t.op, out.Code, time.Duration(now().Sub(t.startedAt)))
	}
	if t.onOutcome != nil {
		t.onOutcome(out)
	}
}

func (t *Ticket) isReturned() bool {
	select {
	case <-t.returned:
		return true
	default:
		return false
	}
}

// A ticketTable holds the tickets in progress. Its capacity is the machine's limit of commands.
type ticketTable struct {
	mu      sync.Mutex
	lastID  effects.Ticket
	byID    map[effects.Ticket]*Ticket
	max     int
	onEnd   CommandTimer  // nil: nobody measures the time of commands
	refusal effects.Code  // why new commands are refused; OK while the node accepts commands
	failed  chan struct{} // closed when closed is Failed: memory that is held may never come back
}

func newTicketTable(limit int) *ticketTable {
	return &ticketTable{byID: make(map[effects.Ticket]*Ticket), max: limit, failed: make(chan struct{})}
}

// A commandClass says when a command is refused.
type commandClass uint8

const (
	classWork   commandClass = iota // refused once the node closes, and when the table is nearly full
	classEnding                     // ends commands or gives memory back: has a reserve in the table, and is accepted while closing
)

// endingReserve sets the part of the table that is reserved for commands of class ending: 1/endingReserve of the
// table. Without the reserve, a full table could not be emptied, because the commands that end others would be
// refused.
const endingReserve = 4

func (r *ticketTable) beginTicket(op string, c commandClass) (*Ticket, error) {
	return r.addTicket(op, c, nil)
}

// beginGroup begins the n commands of a group, or none of them.
func (r *ticketTable) beginGroup(op string, c commandClass, l *commandGroup, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkAdmission(op, c, n); err != nil {
		return err
	}
	for range n {
		t := r.newTicket(op, nil)
		t.group = l
		l.tickets = append(l.tickets, t)
	}
	return nil
}

// beginFetch begins a Fetch command, for which e scatters the chunks. The outcome of the command also ends the
// calls of e.
func (r *ticketTable) beginFetch(op string, e *scatterer) (*Ticket, error) {
	return r.addTicket(op, classWork, e)
}

func (r *ticketTable) addTicket(op string, c commandClass, e *scatterer) (*Ticket, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkAdmission(op, c, 1); err != nil {
		return nil, err
	}
	return r.newTicket(op, e), nil
}

// checkAdmission returns an error if the node takes no more commands of class c, or if there is no room for n more
// commands. The caller holds r.mu.
func (r *ticketTable) checkAdmission(op string, c commandClass, n int) error {
	limit := r.max
	if c == classWork {
		limit -= r.max / endingReserve
	}
	if err := r.refusalFor(op, c); err != nil {
		return err
	}
	switch {
	case n > limit:
		e := tooLargeError(op, "parts of this call", strconv.Itoa(n), "at most "+strconv.Itoa(limit),
			"ask for less, or raise tables.commands or limits.keys_per_batch")
		e.Count = n
		return e
	case len(r.byID)+n > limit:
		return &Error{Op: op, Code: effects.TooMany, Count: len(r.byID), Stage: effects.StageCommand,
			Field: "commands in progress", Theirs: strconv.Itoa(len(r.byID)), Ours: "at most " + strconv.Itoa(limit),
			Remedy: "wait until some commands have ended, or raise tables.commands"}
	}
	return nil
}

// refusalFor returns an error if the node takes no more commands of class c. The caller holds r.mu.
func (r *ticketTable) refusalFor(op string, c commandClass) error {
	if r.refusal == effects.Failed {
		return &Error{Op: op, Code: r.refusal}
	}
	if r.refusal == effects.Closed || r.refusal != effects.OK && c == classWork {
		return &Error{Op: op, Code: r.refusal, Remedy: "this node takes no new work; use another node"}
	}
	return nil
}

// refusalForWork returns an error if the node takes no more commands of class work. The caller must not hold r.mu.
func (r *ticketTable) refusalForWork(op string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refusalFor(op, classWork)
}

func (r *ticketTable) newTicket(op string, e *scatterer) *Ticket {
	r.lastID++
	t := &Ticket{id: r.lastID, op: op, done: make(chan Outcome, 1), returned: make(chan struct{}), scatter: e, onEnd: r.onEnd}
	if r.onEnd != nil {
		t.startedAt = now()
	}
	r.byID[t.id] = t
	return t
}

// deliverOutcome ends a ticket with its outcome. With effects.Deliver.Held, the ticket stays in the table until the
// memory is returned.
func (r *ticketTable) deliverOutcome(d *effects.Deliver) {
	r.mu.Lock()
	t := r.byID[d.Ticket]
	if t != nil {
		if t.inUse = d.Held; !d.Held {
			delete(r.byID, d.Ticket)
		}
	}
	r.mu.Unlock()
	if t == nil {
		panic("BUG: an outcome for a ticket that is not open")
	}
	t.deliverOutcome(Outcome{Code: d.Code, InUse: d.Held, Pages: slices.Clone(d.Pages), Sent: int(d.Sent),
		Skipped: int(d.Skipped), Hits: int(d.Hits), Remaining: int(d.Left), Details: d.Why, Started: d.Begun})
}

// findScatterer returns the scatterer of a command in progress, or nil if the command has none.
func (r *ticketTable) findScatterer(id effects.Ticket) *scatterer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.byID[id]; t != nil {
		return t.scatter
	}
	return nil
}

// returnMemory marks the memory of a ticket as returned, after a delivery with effects.Deliver.Held.
func (r *ticketTable) returnMemory(id effects.Ticket) {
	r.mu.Lock()
	t := r.byID[id]
	inUse := t != nil && t.inUse
	if inUse {
		delete(r.byID, id)
	}
	r.mu.Unlock()
	if !inUse {
		panic("BUG: memory returned for a ticket that holds none")
	}
	t.markReturned()
}

// refuseNew lets the table refuse commands from now on: only commands of class work for Draining, all commands for
// Closed.
func (r *ticketTable) refuseNew(code effects.Code) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusal != effects.Failed {
		r.refusal = code
	}
}

// failAll ends every open command as Failed, and lets the table refuse all commands as Failed. Memory of the pool stays
// held until the node is closed.
func (r *ticketTable) failAll() {
	r.mu.Lock()
	r.refusal = effects.Failed
	ended := r.holdOpen()
	r.mu.Unlock()
	close(r.failed)
	for _, t := range ended {
		t.deliverOutcome(Outcome{Code: effects.Failed, InUse: t.inUse})
	}
}

// holdOpen marks the memory of all open commands as in use, and returns those that have no outcome yet. r.mu is held.
// The memory of a Fetch belongs to the engine, and only the scatter call that ends now stores into it, so the memory of
// a Fetch is not in use.
func (r *ticketTable) holdOpen() (ended []*Ticket) {
	for id, t := range r.byID {
		if t.inUse {
			continue // The outcome is already delivered.
		}
		ended = append(ended, t)
		if t.inUse = t.scatter == nil; !t.inUse {
			delete(r.byID, id)
		}
	}
	return ended
}

// currentRefusal returns why the table refuses new work: OK while it refuses none.
func (r *ticketTable) currentRefusal() effects.Code {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refusal
}

// count returns the number of tickets in the table.
func (r *ticketTable) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byID)
}

// hasFailed reports whether the rank has failed.
func (r *ticketTable) hasFailed() bool {
	select {
	case <-r.failed:
		return true
	default:
		return false
	}
}

// endAll ends the commands that are still open as Closed, because the machine is never stepped again. proven says that
// nothing uses the pool any more; then all memory is returned. Otherwise the memory stays in use until a later call
// with proof (M8): a plane that could not be closed may still read or write the pages.
func (r *ticketTable) endAll(proven bool) {
	r.mu.Lock()
	if r.refusal != effects.Failed {
		r.refusal = effects.Closed
	}
	var held []*Ticket // with an outcome, and memory in use
	for _, t := range r.byID {
		if t.inUse {
			held = append(held, t)
		}
	}
	ended := r.holdOpen()
	if proven {
		for _, t := range r.byID {
			t.inUse = false
		}
		r.byID = map[effects.Ticket]*Ticket{}
	}
	r.mu.Unlock()
	for _, t := range ended {
		t.deliverOutcome(Outcome{Code: effects.Closed, InUse: t.inUse})
	}
	if proven {
		for _, t := range held {
			t.markReturned()
		}
	}
}

// awaitOutcome waits for the outcome of a ticket and returns it. If the context is cancelled first, the command is
// aborted with the command abort, and the call still waits for the outcome, because the pages are in flight until then
// (timeout.go).
func (n *Node) awaitOutcome(ctx context.Context, t *Ticket, abort effects.CommandBody) Outcome {
	select {
	case out := <-t.Done():
		return out
	case <-ctx.Done():
	}
	if !shouldAbort(ctx) {
		return <-t.Done()
	}
	return n.abortAndAwait(t, abort)
}

// abortAndAwait aborts a command, waits for its outcome and returns the outcome.
func (n *Node) abortAndAwait(t *Ticket, abort effects.CommandBody) Outcome {
	if a, err := n.submitCommand("abort", classEnding, abort); err == nil {
		<-a.Done()
	}
	return <-t.Done()
}
