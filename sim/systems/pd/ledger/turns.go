package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Offers wait at a receiver together with allocation requests, in the same queue and for the same pages. An offer gets
// a reply when the chunks have been read.

// offerCame records an offer when the offer reaches the receiver's machine. A message that is no offer is due for a
// reply at once.
func (or *queueOracle) offerCame(n *world.Node, w waiter, body []byte) {
	m, is := or.truth().asOffer(body)
	if is && m.HasExt {
		or.all().places.speaks(n, effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To))
	}
	if !is || len(m.Keys) == 0 || !m.HasExt {
		if is {
			or.takenBack(n, m)
		}
		or.at(n).waiters = append(or.at(n).waiters, w)
		return
	}
	w.peer, w.operation, w.offer = effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, effects.GrantID(m.Ext.Grant)
	w.pull = m.PullID
	if i := or.w.JobNamed(m.Ext.Request); len(m.Ext.Request) > 0 && i < uint64(len(or.w.Jobs)) {
		w.job = int(i) + 1
	}
	w.body, w.what = or.w.Stock.Bytes.Keep(body), digest('o', m.Keys, m.Ext.Request, m.LastChunkTokens)
	w.keys, w.pages, w.atOnce = len(m.Keys), distinct(m.Keys), false
	w.due = or.w.Now + int64(n.Slowest(pd.Its(n).Cfg.AllocTimeout+pd.Its(n).Cfg.ReadTimeout)+pd.Grace)
	or.joins(n, w, effects.Incarnation(m.Ext.To))
}

// takenBack records that a waiting offer is taken back.
func (or *queueOracle) takenBack(n *world.Node, m *protocol.PullReadyNotif) {
	if len(m.Ext.Withdraw) == 0 || !pd.Believes(n, effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)) {
		return
	}
	or.judged(checkOfferBack)
	my := or.at(n)
	for i := range my.waiters {
		o := &my.waiters[i]
		if o.offer != 0 && o.peer == effects.Incarnation(m.Ext.Incarnation) && o.operation == m.Ext.Operation && !o.reading {
			o.back = o.pull == m.Ext.Withdraw[0]
		}
	}
}

// goneBack checks that no offer waits that was taken back, when the machine has no more work for this instant.
func (or *queueOracle) goneBack(n *world.Node) {
	my := or.at(n)
	for i := range my.waiters {
		o := &my.waiters[i]
		if !o.back || n.Busy {
			continue
		}
		if !o.reading {
			or.fail(checkOfferBack, "node %d lets request %d wait, which offers what was taken back",
				n.It(), oracle.Message(o.request))
			return
		}
		o.back = false
	}
}

// read checks that it was an offer's turn, when the receiver begins to read the chunks.
func (or *queueOracle) read(n *world.Node, t *world.Transfer) {
	i := slices.IndexFunc(or.at(n).waiters, func(o waiter) bool {
		return o.offer == t.Grant && o.peer == t.Link.Peer && !o.reading
	})
	if i < 0 {
		return // The offer is part of a scenario, or is read again.
	}
	w := &or.at(n).waiters[i]
	if or.inTurn(n, w, i); or.w.Failure != nil {
		return
	}
	or.overtaking(n, w, i)
	w.reading, w.keys = true, 0
}

// stopped records that the machine cancels a read. The machine can do no more to make the reply possible.
func (or *queueOracle) stopped(n *world.Node, t *world.Transfer) {
	for i := range or.at(n).waiters {
		if o := &or.at(n).waiters[i]; o.readBy(t) {
			o.stopped = true
		}
	}
}

// readEnded makes the reply to an offer due when the end of the read is reported, if a sender waits for the reply.
func (or *queueOracle) readEnded(n *world.Node, t *world.Transfer) {
	my := or.at(n)
	my.waiters = slices.DeleteFunc(my.waiters, func(o waiter) bool { return o.readBy(t) && o.conn == 0 })
	for i := range my.waiters {
		if o := &my.waiters[i]; o.readBy(t) {
			o.atOnce, o.stopped, o.unwanted = true, false, false
		}
	}
}

// readBy reports whether a transfer reads the chunks of this offer.
func (o *waiter) readBy(t *world.Transfer) bool {
	return o.reading && o.offer == t.Grant && o.peer == t.Link.Peer
}

// linked reports whether a request could be served if there were free pages. An offer cannot be served before the
// sender's plane is connected.
func (o *waiter) linked(n *world.Node) bool {
	return o.offer == 0 || slices.ContainsFunc(n.Links,
		func(l *world.Link) bool { return l.Peer == o.peer && l.Given && !l.Told && !l.Dropped })
}

// distinct counts the distinct keys.
func distinct(keys [][]byte) (n int) {
	for i, k := range keys {
		if !slices.ContainsFunc(keys[:i], func(o []byte) bool { return string(o) == string(k) }) {
			n++
		}
	}
	return n
}
