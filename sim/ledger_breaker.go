package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is judged here.
var (
	checkLeftAlone  = newCheck("L4", "puts to who is full")
	checkAskedAlone = newCheck("S7", "requests to who is left alone")
)

// A fullSeen is what one life of a sender was told of a receiver that had nothing to give.
type fullSeen struct {
	told  bool
	last  effects.Time // by the sender's clock, like all of them
	step  uint64       // of the sender, that was told last
	until effects.Time // while it is left alone, because a put ended of it
}

func (l *ledger) full(n *node, receiver int32) *fullSeen {
	for len(n.seen.full) < len(l.w.nodes) {
		n.seen.full = append(n.seen.full, fullSeen{})
	}
	return &n.seen.full[receiver]
}

// heard notes that a receiver says it is full, as the answer reaches its sender's machine.
func (l *ledger) heard(n *node, c *conn, body []byte) {
	limits := protocol.DefaultLimits()
	if n.cfg.BreakerTTL <= 0 || c.channel != effects.ChannelAlloc || c.server < 0 {
		return
	}
	code, told, failed := effects.OK, uint32(0), false
	if m := &l.reply; m.Decode(body, &limits) == nil {
		failed, told = m.AllocFailed, m.Ext.Code
	} else if m := &l.ack; m.Decode(body, &limits) == nil {
		failed, told = m.AllocFailed, m.Ext.Code
	}
	if failed {
		code = effects.NoMemory
	}
	if told != 0 {
		code = effects.CodeFromWire(told)
	}
	if code == effects.NoMemory || code == effects.TooMany || code == effects.Draining {
		f := l.full(n, c.server)
		f.told, f.last, f.step = true, l.w.clock(n), n.steps+1
	}
}

// putEnded: of a put that ends in the step that was told, by that word, its receiver is left alone from then on; and
// nobody is left alone without that, or longer than was said (L4). One whose connection had failed before reads no
// answer, and may end with the same code for another reason.
func (l *ledger) putEnded(n *node, c *command, e *effects.Deliver) {
	code := e.Code
	if n.cfg.BreakerTTL <= 0 {
		l.judged(checkLeftAlone)
		if code == effects.BackedOff {
			l.fail(checkLeftAlone, "node %d has no breaker, and yet leaves node %d alone",
				n.it(), oracle.Node(l.w.jobs[c.job].receiver))
		}
		return
	}
	if l.w.jobs[c.job].plainTo {
		l.void(checkLeftAlone)
		return // Nobody reads its answers here.
	}
	l.judged(checkLeftAlone)
	f, now := l.full(n, l.w.jobs[c.job].receiver), l.w.clock(n)
	switch {
	case code == effects.BackedOff && (!f.told || now > f.last.Add(n.cfg.BreakerTTL)):
		l.fail(checkLeftAlone, "node %d leaves node %d alone, which did not say for so long that it is full",
			n.it(), oracle.Node(l.w.jobs[c.job].receiver))
	case e.Why != nil && e.Why.Stage == effects.StageConnect:
	case f.told && f.step == n.steps && (code == effects.NoMemory || code == effects.TooMany || code == effects.Draining):
		f.until = now.Add(n.cfg.BreakerTTL)
		l.fullMeets(n, l.w.jobs[c.job].receiver)
	}
}

// asking checks that a request for pages does not go to who is left alone.
func (l *ledger) asking(n *node, c *conn, body []byte) {
	if n.cfg.BreakerTTL <= 0 || c.channel != effects.ChannelAlloc || c.server < 0 || !l.full(n, c.server).told {
		return
	}
	l.judged(checkAskedAlone)
	if l.full(n, c.server).until <= l.w.clock(n) {
		return
	}
	limits := protocol.DefaultLimits()
	m := &l.request
	offers := l.offer.Decode(body, &limits) == nil && len(l.offer.Keys) > 0
	if offers || m.Decode(body, &limits) == nil && len(m.Keys) > 0 {
		l.fail(checkAskedAlone, "node %d asks node %d for pages, which it is to leave alone", n.it(), oracle.Node(c.server))
	}
}
