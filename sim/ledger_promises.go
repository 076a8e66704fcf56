package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
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
func (or *promisesOracle) putOK(n *node, e *effects.Deliver, c *command) {
	or.judged(checkPutOK)
	j := &or.w.jobs[c.job]
	b := j.batches[c.batch]
	if missing := or.missing(j, b); missing > 0 {
		or.fail(checkPutOK, "node %d ends put %d well although %d of its chunks never became whole at node %d",
			n.it(), oracle.Ticket(e.Ticket), missing, oracle.Node(j.receiver))
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
func (or *promisesOracle) told(n *node, m *protocol.ProxyNotif, taken bool) {
	or.judged(checkTold, checkToldLife)
	i := or.w.jobNamed(m.RequestID)
	if i >= uint64(len(or.w.jobs)) || or.w.jobs[i].sender != n.id {
		or.fail(checkTold, "node %d tells the proxy of request %q, which is none of its", n.it(), oracle.Request(m.RequestID))
		return
	}
	j := &or.w.jobs[i]
	if j.life != n.life {
		or.fail(checkToldLife, "node %d tells the proxy of request %q of its former life",
			n.it(), oracle.Request(m.RequestID))
		return
	}
	if taken {
		j.told++
	}
	if j.told > 1 {
		or.fail(checkTold, "node %d tells the proxy of request %q twice", n.it(), oracle.Request(m.RequestID))
		return
	}
	missing := 0
	for _, b := range j.batches {
		if b.put != 0 {
			missing += or.missing(j, b)
		}
	}
	if missing > int(m.Failed) {
		or.fail(checkTold, "node %d tells the proxy that %d chunks of request %q are missing, it is %d",
			n.it(), m.Failed, oracle.Request(m.RequestID), missing)
	}
}

// together checks, when the parts of a call have ended, that all of them were taken or none: a request that ended
// without one of them would be told of as whole.
func (or *promisesOracle) together(n *node) {
	if !or.w.parted {
		return
	}
	or.w.parted = false
	for i := range or.w.jobs {
		j := &or.w.jobs[i]
		if !j.whole || j.sender != n.id || j.puts > 0 || j.life != n.life {
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
				n.it(), taken, given, oracle.Request(j.name))
			return
		}
	}
}
