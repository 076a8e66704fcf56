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
	checkPutOK    = oracle.NewCheck("S9", "puts that end well")
	checkTold     = oracle.NewCheck("S9", "notifications")
	checkTogether = oracle.NewCheck("S9", "parts of one put")
	checkToldLife = oracle.NewCheck("S12", "incarnations of notifications")
)

// promisesOracle judges the outcomes of puts, and the notifications about puts to the proxy (S9).
type promisesOracle struct{ judge }

func (*promisesOracle) listen(l *oracle.Listen[promisesOracle]) {
	oracle.On(l, func(o *promisesOracle, _ *oracle.Call, e pd.PutOK) { o.putOK(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *promisesOracle, _ *oracle.Call, e pd.Notified) { o.told(e.Node, e.Message, e.Taken) })
	oracle.On(l, func(o *promisesOracle, _ *oracle.Call, e counted) { o.together(e.node) })
}

// putOK checks that a put which ended well left every chunk at the receiver.
func (or *promisesOracle) putOK(n *world.Node, e *effects.Deliver, c *pd.Command) {
	or.judged(checkPutOK)
	j := &or.w.Jobs[c.Job]
	b := j.Batches[c.Batch]
	if missing := or.missing(j, b); missing > 0 {
		or.fail(checkPutOK, "node %d ends put %d well although %d of its chunks never became whole at node %d",
			n.It(), oracle.Ticket(e.Ticket), missing, oracle.Node(j.Receiver))
	}
}

// missing counts the chunks of a batch that never were whole at the receiver, in any incarnation. Chunks that a restart
// lost do not count.
func (or *promisesOracle) missing(j *pd.Job, b pd.Batch) (n int) {
	for _, id := range j.Ids[b.From:b.To] {
		if j.PlainTo && !or.w.Reader.Has[id] || !j.PlainTo && !or.truth().stored[j.Receiver][id] {
			n++
		}
	}
	return n
}

// told checks a notification to the proxy when it leaves the sender. A notification that the transport does not accept
// counts as never sent, because the sender learns that.
func (or *promisesOracle) told(n *world.Node, m *protocol.ProxyNotif, taken bool) {
	or.judged(checkTold, checkToldLife)
	i := or.w.JobNamed(m.RequestID)
	if i >= uint64(len(or.w.Jobs)) || or.w.Jobs[i].Sender != n.ID {
		or.fail(checkTold, "node %d tells the proxy of request %q, which is none of its", n.It(), oracle.Request(m.RequestID))
		return
	}
	j := &or.w.Jobs[i]
	if j.Life != n.Life {
		or.fail(checkToldLife, "node %d tells the proxy of request %q of its former incarnation",
			n.It(), oracle.Request(m.RequestID))
		return
	}
	if j.Told > 0 && or.forgets(n, j.ToldAt, or.w.Now) {
		j.Told = 0
	}
	if taken {
		j.Told++
		j.ToldAt = or.w.Now
	}
	if j.Told > 1 {
		or.fail(checkTold, "node %d tells the proxy of request %q twice", n.It(), oracle.Request(m.RequestID))
		return
	}
	missing, since := 0, or.remembered(n, int(i))
	for k, b := range j.Batches {
		if b.Put != 0 && (since == 0 || or.begun(n, or.counted(n, int(i), k)) >= since) {
			missing += or.missing(j, b)
		}
	}
	if missing > int(m.Failed) {
		or.fail(checkTold, "node %d tells the proxy that %d chunks of request %q are missing, it is %d",
			n.It(), m.Failed, oracle.Request(m.RequestID), missing)
	}
}

// remembered returns the time since which n has a record of a job's request. The node drops a request of which nothing
// was open for RequestTTL, and then counts anew.
func (or *promisesOracle) remembered(n *world.Node, job int) (since int64) {
	if pd.Its(n).Cfg.RequestTTL == 0 {
		return 0
	}
	var puts []effects.Ticket
	for t := range or.w.Commands {
		if or.counts(n, &or.w.Commands[t], job) {
			puts = append(puts, effects.Ticket(t+1))
		}
	}
	slices.SortFunc(puts, func(a, b effects.Ticket) int { return cmp.Compare(or.begun(n, a), or.begun(n, b)) })
	ended := int64(0)
	for _, t := range puts {
		if begun := or.begun(n, t); ended > 0 && or.forgets(n, ended, begun) {
			since = begun
		}
		ended = max(ended, or.w.Commands[t-1].Outcome)
	}
	return since
}

// counts reports whether a command is a put that counts for a job's request. A put of pages that were filled again does
// not count, and neither does a put that was refused at once, because a refused put changes nothing.
func (or *promisesOracle) counts(n *world.Node, c *pd.Command, job int) bool {
	if c.Want != plan.WantPut || c.Job != job || c.Node != n.ID || c.Life != n.Life || c.Over && !c.Joined {
		return false
	}
	put, ok := c.Body.(*ops.Put)
	return ok && put.Request != nil
}

// counted returns the newest put of a batch that counts for the request, or 0 if there is none.
func (or *promisesOracle) counted(n *world.Node, job, batch int) (newest effects.Ticket) {
	for t := range or.w.Commands {
		if c := &or.w.Commands[t]; c.Batch == batch && or.counts(n, c, job) {
			newest = effects.Ticket(t + 1)
		}
	}
	return newest
}

// begun returns when the machine got a put.
func (or *promisesOracle) begun(n *world.Node, put effects.Ticket) int64 {
	if put == 0 {
		return 0
	}
	c := &or.w.Commands[put-1]
	return c.Due - int64(n.Slowest(c.Patience)+pd.Grace)
}

// forgets reports whether n drops a request of which nothing is open between two instants (RequestTTL).
func (or *promisesOracle) forgets(n *world.Node, from, to int64) bool {
	ttl := pd.Its(n).Cfg.RequestTTL
	return ttl > 0 && to > from && n.Shows(to).Sub(n.Shows(from)) >= ttl
}

// together checks, when the parts of a call have ended, that either all parts or no parts were accepted. Otherwise a
// request that ended without some part would be reported as whole.
func (or *promisesOracle) together(n *world.Node) {
	if !or.w.Parted {
		return
	}
	or.w.Parted = false
	for i := range or.w.Jobs {
		j := &or.w.Jobs[i]
		if !j.Whole || j.Sender != n.ID || j.Puts > 0 || j.Life != n.Life {
			continue
		}
		given, taken := 0, 0
		for _, b := range j.Batches {
			if b.Put != 0 && !b.Refilled {
				given++
				if b.Joined {
					taken++
				}
			}
		}
		or.judged(checkTogether)
		if taken != 0 && taken != given {
			or.fail(checkTogether, "node %d took %d of the %d parts in which request %q was put, and refused the others",
				n.It(), taken, given, oracle.Request(j.Name))
			return
		}
	}
}
