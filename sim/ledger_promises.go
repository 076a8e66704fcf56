package sim

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// What is judged here.
var (
	checkPutOK    = oracle.NewCheck("S9", "puts that end well")
	checkTold     = oracle.NewCheck("S9", "notifications")
	checkTogether = oracle.NewCheck("S9", "parts of one put")
	checkToldLife = oracle.NewCheck("S12", "lives of notifications")
)

// promisesOracle judges what is told of puts that ended.
type promisesOracle struct{ judge }

// putOK checks that a put which went well left every chunk at the receiver.
func (or *promisesOracle) putOK(n *world.Node, e *effects.Deliver, c *command) {
	or.judged(checkPutOK)
	j := &or.w.jobs[c.job]
	b := j.batches[c.batch]
	if missing := or.missing(j, b); missing > 0 {
		or.fail(checkPutOK, "node %d ends put %d well although %d of its chunks never became whole at node %d",
			n.It(), oracle.Ticket(e.Ticket), missing, oracle.Node(j.receiver))
	}
}

// missing counts the chunks of a batch that never were whole at the receiver, in any
// of its lives: what a restart lost is nobody's lie.
func (or *promisesOracle) missing(j *job, b batch) (n int) {
	for _, id := range j.ids[b.from:b.to] {
		if j.plainTo && !or.w.reader.has[id] || !j.plainTo && !or.truth().stored[j.receiver][id] {
			n++
		}
	}
	return n
}

// told checks a notification as it leaves the sender. One that the transport would not
// take counts as never sent: its sender is told so.
func (or *promisesOracle) told(n *world.Node, m *protocol.ProxyNotif, taken bool) {
	or.judged(checkTold, checkToldLife)
	i := or.w.jobNamed(m.RequestID)
	if i >= uint64(len(or.w.jobs)) || or.w.jobs[i].sender != n.ID {
		or.fail(checkTold, "node %d tells the proxy of request %q, which is none of its", n.It(), oracle.Request(m.RequestID))
		return
	}
	j := &or.w.jobs[i]
	if j.life != n.Life {
		or.fail(checkToldLife, "node %d tells the proxy of request %q of its former life",
			n.It(), oracle.Request(m.RequestID))
		return
	}
	if j.told > 0 && or.forgets(n, j.toldAt, or.w.Now) {
		j.told = 0
	}
	if taken {
		j.told++
		j.toldAt = or.w.Now
	}
	if j.told > 1 {
		or.fail(checkTold, "node %d tells the proxy of request %q twice", n.It(), oracle.Request(m.RequestID))
		return
	}
	missing, since := 0, or.remembered(n, int(i))
	for k, b := range j.batches {
		if b.put != 0 && (since == 0 || or.begun(n, or.counted(n, int(i), k)) >= since) {
			missing += or.missing(j, b)
		}
	}
	if missing > int(m.Failed) {
		or.fail(checkTold, "node %d tells the proxy that %d chunks of request %q are missing, it is %d",
			n.It(), m.Failed, oracle.Request(m.RequestID), missing)
	}
}

// remembered is since when n remembers what it was given for a job: it forgets a request of which nothing was open for
// RequestTTL, and counts anew.
func (or *promisesOracle) remembered(n *world.Node, job int) (since int64) {
	if its(n).cfg.RequestTTL == 0 {
		return 0
	}
	var puts []effects.Ticket
	for t := range or.w.commands {
		if or.counts(n, &or.w.commands[t], job) {
			puts = append(puts, effects.Ticket(t+1))
		}
	}
	slices.SortFunc(puts, func(a, b effects.Ticket) int { return cmp.Compare(or.begun(n, a), or.begun(n, b)) })
	ended := int64(0)
	for _, t := range puts {
		if begun := or.begun(n, t); ended > 0 && or.forgets(n, ended, begun) {
			since = begun
		}
		ended = max(ended, or.w.commands[t-1].outcome)
	}
	return since
}

// counts says whether a command is a put that counts for a job's request: one of pages that were filled again does not,
// nor one that was refused at once, which leaves everything as it was.
func (or *promisesOracle) counts(n *world.Node, c *command, job int) bool {
	if c.want != plan.WantPut || c.job != job || c.node != n.ID || c.life != n.Life || c.over && !c.joined {
		return false
	}
	put, ok := c.body.(*ops.Put)
	return ok && put.Request != nil
}

// counted is the newest such put of a batch, or 0.
func (or *promisesOracle) counted(n *world.Node, job, batch int) (newest effects.Ticket) {
	for t := range or.w.commands {
		if c := &or.w.commands[t]; c.batch == batch && or.counts(n, c, job) {
			newest = effects.Ticket(t + 1)
		}
	}
	return newest
}

// begun is when a machine got a put.
func (or *promisesOracle) begun(n *world.Node, put effects.Ticket) int64 {
	if put == 0 {
		return 0
	}
	c := &or.w.commands[put-1]
	return c.due - int64(n.Slowest(c.patience)+grace)
}

// forgets says whether n forgets a request of which nothing is open from one instant to another (RequestTTL).
func (or *promisesOracle) forgets(n *world.Node, from, to int64) bool {
	ttl := its(n).cfg.RequestTTL
	return ttl > 0 && to > from && n.Shows(to).Sub(n.Shows(from)) >= ttl
}

// together checks, when the parts of a call have ended, that all of them were taken or none: a request that ended
// without one of them would be told of as whole.
func (or *promisesOracle) together(n *world.Node) {
	if !or.w.parted {
		return
	}
	or.w.parted = false
	for i := range or.w.jobs {
		j := &or.w.jobs[i]
		if !j.whole || j.sender != n.ID || j.puts > 0 || j.life != n.Life {
			continue
		}
		given, taken := 0, 0
		for _, b := range j.batches {
			if b.put != 0 && !b.refilled {
				given++
				if b.joined {
					taken++
				}
			}
		}
		or.judged(checkTogether)
		if taken != 0 && taken != given {
			or.fail(checkTogether, "node %d took %d of the %d parts in which request %q was put, and refused the others",
				n.It(), taken, given, oracle.Request(j.name))
			return
		}
	}
}
