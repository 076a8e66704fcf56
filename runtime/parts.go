package runtime

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
)

// A machine takes commands of up to limits.keys_per_batch chunks, so that its steps stay short. A call that asks for
// more is several of them. Reserve and Put give all of theirs at once and in order, with nothing between them: they
// wait in the machine's queues as one would. Get, Contains and Fetch give one after the other, as the first that falls
// short ends them.

// cut gives the runs of n things of which each part has up to most.
func cut(n, most int) (runs [][2]int) {
	for from := 0; from < n; from += most {
		runs = append(runs, [2]int{from, min(from+most, n)})
	}
	return runs
}

// A lot is the commands that one call became.
type lot struct {
	node     *Node
	tickets  []*Ticket
	left     atomic.Int64  // whose memory is not back
	returned chan struct{} // closed when all of it is
	over     func()        // is told then, by whom must not be held up; nil: nobody
}

// Returned is closed when the memory of all commands is back.
func (l *lot) Returned() <-chan struct{} { return l.returned }

func (l *lot) isReturned() bool { return l.left.Load() == 0 }

// back notes that the memory of one more command is.
func (l *lot) back() {
	if l.left.Add(-1) == 0 {
		close(l.returned)
		if l.over != nil {
			l.over()
		}
	}
}

// submitAll gives the machine commands that belong together, all or none, and nothing else between them. link is told
// their tickets before that.
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

// awaitAll waits for the outcomes of all commands. A context that ends first has those that are open taken back.
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
		// From the last one on: one that is taken back frees no memory that a later one would begin with.
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
