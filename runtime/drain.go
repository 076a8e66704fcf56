package runtime

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
)

// drainLogPeriod is the time between two lines of the log about what a drain waits for.
const drainLogPeriod = time.Second

// Drain refuses new work and ends the open work, within pd_shutdown_timeout_sec or until the deadline of ctx. The log
// says every second what the drain waits for. Close drains the node by itself. If the time is over first, Drain returns an
// error that lists what is still open, and how many things these are.
func (n *Node) Drain(ctx context.Context) (remaining int, err error) {
	n.tickets.refuseNew(effects.Draining)
	t, err := n.submitCommand("drain", classEnding, &rank.Drain{Timeout: commandTimeout(ctx, 0, n.times().drain)})
	if err != nil {
		return 0, err
	}
	out := n.awaitDrain(t)
	if out.Code != effects.OK {
		return out.Remaining, &Error{Op: "drain", Code: out.Code, Count: out.Remaining, Remedy: fmt.Sprintf(
			"still open: %s; release all pages, check that the proxy accepts notifications, or raise pd_shutdown_timeout_sec",
			describeUnfinished(n.listUnfinished()))}
	}
	return 0, nil
}

// awaitDrain returns the outcome of a drain, and logs meanwhile what the drain waits for.
func (n *Node) awaitDrain(t *Ticket) Outcome {
	ticker := time.NewTicker(drainLogPeriod)
	defer ticker.Stop()
	for {
		select {
		case out := <-t.Done():
			return out
		case <-ticker.C:
			n.log.Info("draining", "waits_for", describeUnfinished(n.listUnfinished()))
		}
	}
}

// listUnfinished returns what the machine's drain waits for, or nil if the machine does not answer in time.
func (n *Node) listUnfinished() []rank.Unfinished {
	ctx, cancel := context.WithTimeout(bg, drainLogPeriod)
	defer cancel()
	var all []rank.Unfinished // written by the loop, perhaps after this call has returned
	if n.loop.runBetweenUntil(ctx, func() { all = n.machine.ListUnfinished() }) {
		return all
	}
	return nil
}

// describeUnfinished returns what a drain waits for as text, such as "puts: 2; fetches: 1".
func describeUnfinished(all []rank.Unfinished) string {
	if len(all) == 0 {
		return "nothing that the machine counts"
	}
	parts := make([]string, len(all))
	for i, x := range all {
		parts[i] = fmt.Sprintf("%s: %d", x.Kind, x.Count)
	}
	return strings.Join(parts, "; ")
}
