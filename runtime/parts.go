package runtime

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
)

// cut splits n items into parts of at most the given length, and returns the bounds of each part.
//
// The machine takes commands of up to limits.keys_per_batch chunks, so that the machine's steps stay short. A call
// with more chunks becomes several commands. Reserve and Put submit all commands at once and in order, with no other
// command in between, so that the commands wait in the machine's queues like a single command. Get, Contains and Fetch
// submit commands in sequence, because the first command that falls short ends the call.
func cut(n, most int) (runs [][2]int) {
	for from := 0; from < n; from += most {
		runs = append(runs, [2]int{from, min(from+most, n)})
	}
	return runs
}

// A lot is the set of commands that one call became.
type lot struct {
	node     *Node
	tickets  []*Ticket
	left     atomic.Int64  // number of commands that still use their memory
	returned chan struct{} // closed when the memory of all commands is returned
	over     func()        // called then; must not block; nil: not called
}

// Returned returns a channel that is closed when the memory of all commands is returned.
func (l *lot) Returned() <-chan struct{} { return l.returned }

func (l *lot) isReturned() bool { return l.left.Load() == 0 }

// back records that the memory of one more command is returned.
func (l *lot) back() {
	if l.left.Add(-1) == 0 {
		close(l.returned)
		if l.over != nil {
			l.over()
		}
	}
}

// submitAll submits commands that belong together: all of them or none, with no other command in between. It calls
// link with the tickets before the machine gets the commands. It fails if the ticket table refuses the commands.
func (n *Node) submitAll(op string, c class, bodies []effects.CommandBody, link func([]*Ticket)) (*lot, error) {
	l := &lot{node: n, returned: make(chan struct{})}
	l.left.Store(int64(len(bodies)))
	if err := n.tickets.beginAll(op, c, l, len(bodies)); err != nil {
		return nil, err
	}
	link(l.tickets)
	events := make([]effects.Event, len(bodies))
	for i, t := range l.tickets {
		events[i] = &effects.Command{Ticket: t.id, Body: bodies[i]}
	}
	n.loop.mailbox.PostAll(events)
	return l, nil
}

// awaitAll waits for the outcomes of all commands of a lot and returns them. If the context is cancelled first,
// the commands that are still open are aborted.
func (n *Node) awaitAll(ctx context.Context, l *lot, abort func(effects.Ticket) effects.CommandBody) []Outcome {
	outs := make([]Outcome, len(l.tickets))
	for i, t := range l.tickets {
		select {
		case outs[i] = <-t.Done():
			continue
		case <-ctx.Done():
		}
		if !takesBack(ctx) {
			outs[i] = <-t.Done()
			continue
		}
		// Abort from the last command backwards, so that memory that an aborted command frees does not start a
		// later command of the same lot.
		for _, open := range slices.Backward(l.tickets[i:]) {
			if a, err := n.submit("abort", ending, abort(open.id)); err == nil {
				<-a.Done()
			}
		}
		for ; i < len(l.tickets); i++ {
			outs[i] = <-l.tickets[i].Done()
		}
		break
	}
	return outs
}
