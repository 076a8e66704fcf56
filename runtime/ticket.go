package runtime

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// An Outcome is the result of a command.
type Outcome struct {
	Code effects.Code
	// Held says that the pages of the command may still be accessed; Ticket.Returned reports the end of that.
	Held    bool
	Pages   []effects.Page // pages that the command took or gave back, in the order of the command
	Sent    int            // Put: number of chunks that this command wrote
	Skipped int            // Put: number of chunks that the peer already had
	Hits    int            // Get, Contains: chunks of the usable prefix; Fetch: all chunks, if the Fetch succeeded
	Left    int            // Drain: number of items that are still open
	Why     *effects.Why   // details of Code; nil if there are none
	Begun   bool           // a Fetch that failed after it started: the offers for it are given up
}

// A Ticket represents one command in progress.
type Ticket struct {
	id       effects.Ticket
	op       string
	done     chan Outcome  // receives exactly one outcome
	returned chan struct{} // closed when nothing accesses the command's memory any more
	held     bool          // the outcome is delivered, but the memory is still in use; guarded by the ticketTable
	scatter  *scatterer    // of a Fetch; nil for other commands
	lot      *lot          // lot that the command is part of; nil if the command is alone
	told     func(Outcome) // called with the outcome; must not block; nil: not called
}

// ID returns the number by which an Abort or Release command names this command.
func (t *Ticket) ID() effects.Ticket { return t.id }

// Done returns a channel that delivers the one outcome. The outcome always arrives, because every command has a
// deadline.
func (t *Ticket) Done() <-chan Outcome { return t.done }

// Returned returns a channel that is closed when nothing accesses the command's memory any more: together with the
// outcome or, if Outcome.Held is set, later.
func (t *Ticket) Returned() <-chan struct{} { return t.returned }

// back records that nothing accesses the command's memory any more.
func (t *Ticket) back() {
	close(t.returned)
	if t.lot != nil {
		t.lot.back()
	}
}

// end delivers the one outcome. Without Outcome.Held, the memory is marked as returned before the outcome is
// delivered, so that the receiver of the outcome may check isReturned.
func (t *Ticket) end(out Outcome) {
	if t.scatter != nil {
		t.scatter.over()
	}
	if !out.Held {
		t.back()
	}
	t.done <- out
	if t.told != nil {
		t.told(out)
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
	mu     sync.Mutex
	last   effects.Ticket
	open   map[effects.Ticket]*Ticket
	max    int
	closed effects.Code  // why new commands are refused; OK while the node accepts commands
	fallen chan struct{} // closed when closed is Failed: memory that is held may never come back
}

func newTicketTable(limit int) *ticketTable {
	return &ticketTable{open: make(map[effects.Ticket]*Ticket), max: limit, fallen: make(chan struct{})}
}

// A class says when a command is refused.
type class uint8

const (
	work   class = iota // refused once the node closes, and when the table is nearly full
	ending              // ends commands or gives memory back: has a reserve in the table, and is accepted while closing
)

// endingReserve sets the part of the table that is reserved for commands of class ending: 1/endingReserve of the
// table. Without the reserve, a full table could not be emptied, because the commands that end others would be
// refused.
const endingReserve = 4

func (r *ticketTable) begin(op string, c class) (*Ticket, error) { return r.add(op, c, nil) }

// beginAll begins the n commands of a lot, or none of them.
func (r *ticketTable) beginAll(op string, c class, l *lot, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(op, c, n); err != nil {
		return err
	}
	for range n {
		t := r.next(op, nil)
		t.lot = l
		l.tickets = append(l.tickets, t)
	}
	return nil
}

// beginFetch begins a Fetch command, for which e scatters the chunks. The outcome of the command also ends the
// calls of e.
func (r *ticketTable) beginFetch(op string, e *scatterer) (*Ticket, error) { return r.add(op, work, e) }

func (r *ticketTable) add(op string, c class, e *scatterer) (*Ticket, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(op, c, 1); err != nil {
		return nil, err
	}
	return r.next(op, e), nil
}

// admit returns an error if the node takes no more commands of class c, or if there is no room for n more
// commands. The caller holds r.mu.
func (r *ticketTable) admit(op string, c class, n int) error {
	limit := r.max
	if c == work {
		limit -= r.max / endingReserve
	}
	if err := r.over(op, c); err != nil {
		return err
	}
	switch {
	case n > limit:
		e := tooLarge(op, "parts of this call", strconv.Itoa(n), "at most "+strconv.Itoa(limit),
			"ask for less, or raise tables.commands or limits.keys_per_batch")
		e.Count = n
		return e
	case len(r.open)+n > limit:
		return &Error{Op: op, Code: effects.TooMany, Count: len(r.open), Stage: effects.StageCommand,
			Field: "commands in progress", Theirs: strconv.Itoa(len(r.open)), Ours: "at most " + strconv.Itoa(limit),
			Remedy: "wait for some to end, or raise tables.commands"}
	}
	return nil
}

// over returns an error if the node takes no more commands of class c. The caller holds r.mu.
func (r *ticketTable) over(op string, c class) error {
	if r.closed == effects.Failed {
		return &Error{Op: op, Code: r.closed}
	}
	if r.closed == effects.Closed || r.closed != effects.OK && c == work {
		return &Error{Op: op, Code: r.closed, Remedy: "this node takes no new work; use another"}
	}
	return nil
}

// isOver returns an error if the node takes no more commands of class work. The caller must not hold r.mu.
func (r *ticketTable) isOver(op string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over(op, work)
}

func (r *ticketTable) next(op string, e *scatterer) *Ticket {
	r.last++
	t := &Ticket{id: r.last, op: op, done: make(chan Outcome, 1), returned: make(chan struct{}), scatter: e}
	r.open[t.id] = t
	return t
}

// deliver ends a ticket with its outcome. With effects.Deliver.Held, the ticket stays in the table until the memory is
// returned.
func (r *ticketTable) deliver(d *effects.Deliver) {
	r.mu.Lock()
	t := r.open[d.Ticket]
	if t != nil {
		if t.held = d.Held; !d.Held {
			delete(r.open, d.Ticket)
		}
	}
	r.mu.Unlock()
	if t == nil {
		panic("BUG: an outcome for a ticket that is not open")
	}
	t.end(Outcome{Code: d.Code, Held: d.Held, Pages: slices.Clone(d.Pages), Sent: int(d.Sent),
		Skipped: int(d.Skipped), Hits: int(d.Hits), Left: int(d.Left), Why: d.Why, Begun: d.Begun})
}

// scattererOf returns the scatterer of a command in progress, or nil if the command has none.
func (r *ticketTable) scattererOf(id effects.Ticket) *scatterer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.open[id]; t != nil {
		return t.scatter
	}
	return nil
}

// giveBack marks the memory of a ticket as returned, after a delivery with effects.Deliver.Held.
func (r *ticketTable) giveBack(id effects.Ticket) {
	r.mu.Lock()
	t := r.open[id]
	held := t != nil && t.held
	if held {
		delete(r.open, id)
	}
	r.mu.Unlock()
	if !held {
		panic("BUG: memory returned for a ticket that holds none")
	}
	t.back()
}

// refuse lets the table refuse commands from now on: only commands of class work for Draining, all commands for
// Closed.
func (r *ticketTable) refuse(why effects.Code) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != effects.Failed {
		r.closed = why
	}
}

// fall ends every open command as Failed, and lets the table refuse all commands as Failed. Memory of the pool stays
// held until the node is closed.
func (r *ticketTable) fall() {
	r.mu.Lock()
	r.closed = effects.Failed
	var ended []*Ticket
	for id, t := range r.open {
		if t.held {
			continue // The outcome is already delivered.
		}
		ended = append(ended, t)
		if t.held = t.scatter == nil; !t.held {
			delete(r.open, id)
		}
	}
	r.mu.Unlock()
	close(r.fallen)
	for _, t := range ended {
		// The memory of a Fetch belongs to the engine, and only the scatter call that ends now stores into it, so
		// the memory of a Fetch is not held.
		t.end(Outcome{Code: effects.Failed, Held: t.held})
	}
}

// hasFallen reports whether the rank has failed.
func (r *ticketTable) hasFallen() bool {
	select {
	case <-r.fallen:
		return true
	default:
		return false
	}
}

// abandon ends the commands that are still open, because the machine is never stepped again. All memory is
// returned: the caller guarantees that nothing uses the pool any more.
func (r *ticketTable) abandon() {
	r.mu.Lock()
	open := r.open
	r.open = map[effects.Ticket]*Ticket{}
	if r.closed != effects.Failed {
		r.closed = effects.Closed
	}
	r.mu.Unlock()
	for _, t := range open {
		if t.held {
			t.back() // The outcome is already delivered.
			continue
		}
		t.end(Outcome{Code: effects.Closed})
	}
}

// await waits for the outcome of a ticket and returns it. If the context is cancelled first, the command is aborted
// with the command abort, and the call still waits for the outcome, because the pages are in flight until then
// (deadline.go).
func (n *Node) await(ctx context.Context, t *Ticket, abort effects.CommandBody) Outcome {
	select {
	case out := <-t.Done():
		return out
	case <-ctx.Done():
	}
	if !takesBack(ctx) {
		return <-t.Done()
	}
	return n.takeBack(t, abort)
}

// takeBack aborts a command, waits for its outcome and returns the outcome.
func (n *Node) takeBack(t *Ticket, abort effects.CommandBody) Outcome {
	if a, err := n.submit("abort", ending, abort); err == nil {
		<-a.Done()
	}
	return <-t.Done()
}
