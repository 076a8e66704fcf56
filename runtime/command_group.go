package runtime

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
)

// splitRuns splits n items into parts of at most the given length, and returns the bounds of each part.
//
// The machine takes commands of up to limits.keys_per_batch chunks, so that the machine's steps stay short. A call
// with more chunks becomes several commands. Reserve and Put submit all commands at once and in order, with no other
// command in between, so that the commands wait in the machine's queues like a single command. Get, Contains and Fetch
// submit commands in sequence, because the first command that falls short ends the call.
func splitRuns(n, maxLen int) (runs [][2]int) {
	for from := 0; from < n; from += maxLen {
		runs = append(runs, [2]int{from, min(from+maxLen, n)})
	}
	return runs
}

// A commandGroup is the set of commands that one call became.
type commandGroup struct {
	node        *Node
	tickets     []*Ticket
	outstanding atomic.Int64  // number of commands that still use their memory
	returned    chan struct{} // closed when the memory of all commands is returned
	onReturned  func()        // called then; must not block; nil: not called
}

// Returned returns a channel that is closed when the memory of all commands is returned.
func (l *commandGroup) Returned() <-chan struct{} { return l.returned }

func (l *commandGroup) isReturned() bool { return l.outstanding.Load() == 0 }

// markReturned records that the memory of one more command is returned.
func (l *commandGroup) markReturned() {
	if l.outstanding.Add(-1) == 0 {
		close(l.returned)
		if l.onReturned != nil {
			l.onReturned()
		}
	}
}

// submitAll submits commands that belong together: all of them or none, with no other command in between. It calls
// link with the tickets before the machine gets the commands. It fails if the ticket table refuses the commands.
func (n *Node) submitAll(op string, c commandClass, bodies []effects.CommandBody, link func([]*Ticket)) (*commandGroup, error) {
	l := &commandGroup{node: n, returned: make(chan struct{})}
	l.outstanding.Store(int64(len(bodies)))
	if err := n.tickets.beginGroup(op, c, l, len(bodies)); err != nil {
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

// awaitAll waits for the outcomes of all commands of a group and returns them. If the context is cancelled first, the
// commands that are still open are aborted.
func (n *Node) awaitAll(ctx context.Context, l *commandGroup, abort func(effects.Ticket) effects.CommandBody) []Outcome {
	outs := make([]Outcome, len(l.tickets))
	for i, t := range l.tickets {
		select {
		case outs[i] = <-t.Done():
			continue
		case <-ctx.Done():
		}
		if !shouldAbort(ctx) {
			outs[i] = <-t.Done()
			continue
		}
		// Abort from the last command backwards, so that memory that an aborted command frees does not start a later
		// command of the same group.
		for _, open := range slices.Backward(l.tickets[i:]) {
			if a, err := n.submitCommand("abort", classEnding, abort(open.id)); err == nil {
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
