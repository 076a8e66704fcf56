package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkPutOK               = oracle.NewCheck("S9", "puts that succeed")
	checkNotified            = oracle.NewCheck("S9", "notifications")
	checkPutParts            = oracle.NewCheck("S9", "parts of one put")
	checkNotifiedIncarnation = oracle.NewCheck("S12", "incarnations of notifications")
)

// putResultOracle judges the outcomes of puts, and the notifications about puts to the proxy (S9).
type putResultOracle struct{ oracleBase }

func (*putResultOracle) subscribe(l *oracle.Subscriptions[putResultOracle]) {
	oracle.On(l, func(o *putResultOracle, _ *oracle.Call, e pd.PutSucceeded) { o.verifyPut(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *putResultOracle, _ *oracle.Call, e pd.ProxyNotified) {
		o.verifyNotification(e.Node, e.Message, e.Accepted)
	})
	oracle.On(l, func(o *putResultOracle, _ *oracle.Call, e stepCounted) { o.verifyParts(e.node) })
}

// verifyPut checks that a put which ended well left every chunk at the receiver.
func (or *putResultOracle) verifyPut(n *world.Node, e *effects.Deliver, c *pd.Command) {
	or.countJudged(checkPutOK)
	j := &or.w.Jobs[c.Job]
	b := j.Batches[c.Batch]
	if missing := or.countMissing(j, b); missing > 0 {
		or.fail(checkPutOK, "node %d ends put %d as ok although %d chunks never became whole at node %d",
			n.AsSubject(), oracle.Ticket(e.Ticket), missing, oracle.Node(j.Receiver))
	}
}

// countMissing counts the chunks of a batch that never were whole at the receiver, in any incarnation. Chunks that a
// restart lost do not count.
func (or *putResultOracle) countMissing(j *pd.Job, b pd.Batch) (n int) {
	for _, id := range j.KeyNumbers[b.From:b.To] {
		if j.PlainTo && !or.w.PlainReader.ReadKeys[id] || !j.PlainTo && !or.facts().wholeKeys[j.Receiver][id] {
			n++
		}
	}
	return n
}

// verifyNotification checks a notification to the proxy when it leaves the sender. A notification that the transport
// does not accept counts as never sent, because the sender learns that.
func (or *putResultOracle) verifyNotification(n *world.Node, m *protocol.ProxyNotif, accepted bool) {
	or.countJudged(checkNotified, checkNotifiedIncarnation)
	i := or.w.JobIndex(m.RequestID)
	if i >= uint64(len(or.w.Jobs)) || or.w.Jobs[i].Sender != n.ID {
		or.fail(checkNotified, "node %d notifies the proxy of request %q, which is not a request of this node", n.AsSubject(),
			oracle.Request(m.RequestID))
		return
	}
	j := &or.w.Jobs[i]
	if j.SenderIncarnation != n.Incarnation {
		or.fail(checkNotifiedIncarnation, "node %d notifies the proxy of request %q of its former incarnation",
			n.AsSubject(), oracle.Request(m.RequestID))
		return
	}
	if j.Notifications > 0 && or.hasForgotten(n, j.NotifiedAt, or.w.Now) {
		j.Notifications = 0
	}
	if accepted {
		j.Notifications++
		j.NotifiedAt = or.w.Now
	}
	if j.Notifications > 1 {
		or.fail(checkNotified, "node %d notifies the proxy of request %q twice", n.AsSubject(), oracle.Request(m.RequestID))
		return
	}
	missing, since := 0, or.rememberedSince(n, int(i))
	for k, b := range j.Batches {
		if b.Put != 0 && (since == 0 || or.receiptTime(n, or.newestCountedPut(n, int(i), k)) >= since) {
			missing += or.countMissing(j, b)
		}
	}
	if missing > int(m.Failed) {
		or.fail(checkNotified, "node %d notifies the proxy that %d chunks of request %q are missing, and %d are",
			n.AsSubject(), m.Failed, oracle.Request(m.RequestID), missing)
	}
}

// rememberedSince returns the time since which n has a record of a job's request. The node drops a request of which
// nothing was open for RequestTTL, and then counts anew.
func (or *putResultOracle) rememberedSince(n *world.Node, job int) (since int64) {
	if pd.InfoOf(n).Cfg.RequestTTL == 0 {
		return 0
	}
	var puts []effects.Ticket
	for t := range or.w.Commands {
		if or.isCountedPut(n, &or.w.Commands[t], job) {
			puts = append(puts, effects.Ticket(t+1))
		}
	}
	slices.SortFunc(puts, func(a, b effects.Ticket) int { return cmp.Compare(or.receiptTime(n, a), or.receiptTime(n, b)) })
	lastEnd := int64(0)
	for _, t := range puts {
		if receivedAt := or.receiptTime(n, t); lastEnd > 0 && or.hasForgotten(n, lastEnd, receivedAt) {
			since = receivedAt
		}
		lastEnd = max(lastEnd, or.w.Commands[t-1].FinishedAt)
	}
	return since
}

// isCountedPut reports whether a command is a put that counts for a job's request. A put of pages that were filled
// again does not count, and neither does a put that was refused at once, because a refused put changes nothing.
func (or *putResultOracle) isCountedPut(n *world.Node, c *pd.Command, job int) bool {
	if c.Kind != plan.CommandPut || c.Job != job || c.Node != n.ID || c.Incarnation != n.Incarnation || c.Finished && !c.Accepted {
		return false
	}
	put, ok := c.Body.(*ops.Put)
	return ok && put.Request != nil
}

// newestCountedPut returns the newest put of a batch that counts for the request, or 0 if there is none.
func (or *putResultOracle) newestCountedPut(n *world.Node, job, batch int) (newest effects.Ticket) {
	for t := range or.w.Commands {
		if c := &or.w.Commands[t]; c.Batch == batch && or.isCountedPut(n, c, job) {
			newest = effects.Ticket(t + 1)
		}
	}
	return newest
}

// receiptTime returns when the machine got a put.
func (or *putResultOracle) receiptTime(n *world.Node, put effects.Ticket) int64 {
	if put == 0 {
		return 0
	}
	c := &or.w.Commands[put-1]
	return c.DueAt - int64(n.LongestSpan(c.Timeout)+pd.Grace)
}

// hasForgotten reports whether n drops a request of which nothing is open between two instants (RequestTTL).
func (or *putResultOracle) hasForgotten(n *world.Node, from, to int64) bool {
	ttl := pd.InfoOf(n).Cfg.RequestTTL
	return ttl > 0 && to > from && n.ReadingAt(to).Sub(n.ReadingAt(from)) >= ttl
}

// verifyParts checks, when the parts of a call have ended, that either all parts or no parts were accepted. Otherwise a
// request that ended without some part would be reported as whole.
func (or *putResultOracle) verifyParts(n *world.Node) {
	if !or.w.CallPartEnded {
		return
	}
	or.w.CallPartEnded = false
	for i := range or.w.Jobs {
		j := &or.w.Jobs[i]
		if !j.Whole || j.Sender != n.ID || j.OpenPuts > 0 || j.SenderIncarnation != n.Incarnation {
			continue
		}
		givenParts, acceptedParts := 0, 0
		for _, b := range j.Batches {
			if b.Put != 0 && !b.Refilled {
				givenParts++
				if b.Accepted {
					acceptedParts++
				}
			}
		}
		or.countJudged(checkPutParts)
		if acceptedParts != 0 && acceptedParts != givenParts {
			or.fail(checkPutParts, "node %d accepted %d of the %d parts in which request %q was put, and refused the rest",
				n.AsSubject(), acceptedParts, givenParts, oracle.Request(j.Name))
			return
		}
	}
}
