package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is judged here.
var (
	checkPutOK    = newCheck("S9", "puts that end well")
	checkTold     = newCheck("S9", "notifications")
	checkToldLife = newCheck("S12", "lives of notifications")
)

// putOK checks that a put which went well left every chunk at the receiver.
func (l *ledger) putOK(n *node, e *effects.Deliver, c *command) {
	l.judged(checkPutOK)
	j := &l.w.jobs[c.job]
	b := j.batches[c.batch]
	if missing := l.missing(j, b); missing > 0 {
		l.fail(checkPutOK, "node %d ends put %d well although %d of its chunks never became whole at node %d",
			n.it(), oracle.Ticket(e.Ticket), missing, oracle.Node(j.receiver))
	}
}

// missing counts the chunks of a batch that never were whole at the receiver, in any
// of its lives: what a restart lost is nobody's lie.
func (l *ledger) missing(j *job, b batch) (n int) {
	for _, id := range j.ids[b.from:b.to] {
		if j.plainTo && !l.w.reader.has[id] || !j.plainTo && !l.stored[j.receiver][id] {
			n++
		}
	}
	return n
}

// told checks a notification as it leaves the sender. One that the transport would not
// take counts as never sent: its sender is told so.
func (l *ledger) told(n *node, m *protocol.ProxyNotif, taken bool) {
	l.judged(checkTold, checkToldLife)
	i := l.w.jobNamed(m.RequestID)
	if i >= uint64(len(l.w.jobs)) || l.w.jobs[i].sender != n.id {
		l.fail(checkTold, "node %d tells the proxy of request %q, which is none of its", n.it(), oracle.Request(m.RequestID))
		return
	}
	j := &l.w.jobs[i]
	if j.life != n.life {
		l.fail(checkToldLife, "node %d tells the proxy of request %q of its former life", n.it(), oracle.Request(m.RequestID))
		return
	}
	if taken {
		j.told++
	}
	if j.told > 1 {
		l.fail(checkTold, "node %d tells the proxy of request %q twice", n.it(), oracle.Request(m.RequestID))
		return
	}
	missing := 0
	for _, b := range j.batches {
		if b.put != 0 {
			missing += l.missing(j, b)
		}
	}
	if missing > int(m.Failed) {
		l.fail(checkTold, "node %d tells the proxy that %d chunks of request %q are missing, it is %d",
			n.it(), m.Failed, oracle.Request(m.RequestID), missing)
	}
}
