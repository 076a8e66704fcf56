package runtime

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/kvferry/kvferry/effects"
)

// An Outcome is how a command ended.
type Outcome struct {
	Code effects.Code
	// Held says that the command's pages may still be touched; Ticket.Returned tells when that ends.
	Held    bool
	Pages   []effects.Page // memory given or given back, in the command's order
	Sent    int            // Put: chunks that this command wrote
	Skipped int            // Put: chunks that the peer already had
	Hits    int            // Get, Contains: chunks of the usable prefix; Fetch: all, if it ended well
	Left    int            // Drain: things still out
	Why     *effects.Why   // what Code leaves open; nil where there is no more to say
	Begun   bool           // Fetch that failed: what was offered for it is given up
}

// A Ticket is one command in progress.
type Ticket struct {
	id       effects.Ticket
	op       string
	done     chan Outcome  // gets exactly one
	returned chan struct{} // closed when the command's memory is back
	held     bool          // delivered with memory that is not; the table's
	scatter  *scatterer    // of a Fetch; nil for the others
	lot      *lot          // that it is one of, if it is
	told     func(Outcome) // is given the outcome as well, and must not block; nil: nobody
}

// ID is what an Abort or Release command names.
func (t *Ticket) ID() effects.Ticket { return t.id }

// Done gives the one outcome. Every command has a deadline, so it always comes.
func (t *Ticket) Done() <-chan Outcome { return t.done }

// Returned is closed once nothing touches the command's memory any more: with the outcome, or, where
// that said Held, later.
func (t *Ticket) Returned() <-chan struct{} { return t.returned }

// back says that nothing touches the command's memory any more.
func (t *Ticket) back() {
	close(t.returned)
	if t.lot != nil {
		t.lot.back()
	}
}

// end gives the one outcome. What it does not call held is back before it, so that whoever has it may look.
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

// A ticketTable has the tickets in progress. Its bound is the machine's limit of commands.
type ticketTable struct {
	mu     sync.Mutex
	last   effects.Ticket
	open   map[effects.Ticket]*Ticket
	max    int
	closed effects.Code  // why there are no new ones; OK while there are
	fallen chan struct{} // closed when closed is Failed: what is held may never come back
}

func newTicketTable(limit int) *ticketTable {
	return &ticketTable{open: make(map[effects.Ticket]*Ticket), max: limit, fallen: make(chan struct{})}
}

// A command's class says when it is refused.
type class uint8

const (
	work   class = iota // refused once the node closes, and when the table is nearly full
	ending              // gives back or takes back: has a reserve of its own, and is taken while closing
)

// endingReserve is the part of the table, one in so many, that work leaves to what ends it. Without it
// a full table could not be emptied.
const endingReserve = 4

func (r *ticketTable) begin(op string, c class) (*Ticket, error) { return r.add(op, c, nil) }

// beginAll begins the n commands of a lot, or none.
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

// beginFetch begins a command whose chunks e scatters. The outcome ends e's calls.
func (r *ticketTable) beginFetch(op string, e *scatterer) (*Ticket, error) { return r.add(op, work, e) }

func (r *ticketTable) add(op string, c class, e *scatterer) (*Ticket, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.admit(op, c, 1); err != nil {
		return nil, err
	}
	return r.next(op, e), nil
}

// admit says whether there is room for n commands more.
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

// over says whether the node takes no more commands of a class.
func (r *ticketTable) over(op string, c class) error {
	if r.closed == effects.Failed {
		return &Error{Op: op, Code: r.closed}
	}
	if r.closed == effects.Closed || r.closed != effects.OK && c == work {
		return &Error{Op: op, Code: r.closed, Remedy: "this node takes no new work; use another"}
	}
	return nil
}

// isOver is over, for who does not hold the register.
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

// deliver ends a ticket; a held one stays in the table until giveBack.
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

// scattererOf is what scatters the chunks of a command in progress; nil if it has none.
func (r *ticketTable) scattererOf(id effects.Ticket) *scatterer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.open[id]; t != nil {
		return t.scatter
	}
	return nil
}

// giveBack returns the memory of a ticket that was delivered without it.
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

// refuse makes begin refuse from now on: work only for Draining, everything for Closed.
func (r *ticketTable) refuse(why effects.Code) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != effects.Failed {
		r.closed = why
	}
}

// fall ends everything as Failed: what is open, and what is begun from now on. Memory of the pool stays held until
// settle.
func (r *ticketTable) fall() {
	r.mu.Lock()
	r.closed = effects.Failed
	var ended []*Ticket
	for id, t := range r.open {
		if t.held {
			continue // It has its outcome.
		}
		ended = append(ended, t)
		if t.held = t.scatter == nil; !t.held {
			delete(r.open, id)
		}
	}
	r.mu.Unlock()
	close(r.fallen)
	for _, t := range ended {
		// A fetch's memory is the engine's, and what stores into it is the call that now ends: it is not held.
		t.end(Outcome{Code: effects.Failed, Held: t.held})
	}
}

// hasFallen says whether the rank has failed.
func (r *ticketTable) hasFallen() bool {
	select {
	case <-r.fallen:
		return true
	default:
		return false
	}
}

// abandon ends what is still open, because nothing will step the machine again. All memory is back: nothing is at the
// pool any more.
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
			t.back() // It has its outcome.
			continue
		}
		t.end(Outcome{Code: effects.Closed})
	}
}

// await waits for a ticket's outcome. A context that is cancelled first has the command taken back with abort,
// and the outcome is waited for all the same: until it is there, the pages are in flight (deadline.go).
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

// takeBack ends a command, and waits for its outcome.
func (n *Node) takeBack(t *Ticket, abort effects.CommandBody) Outcome {
	if a, err := n.submit("abort", ending, abort); err == nil {
		<-a.Done()
	}
	return <-t.Done()
}
