package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Offers wait at a receiver beside the requests for pages, in the same order and for the same
// pages; they are answered when they have been read.

// offerCame notes an offer as it reaches its receiver's machine; what is none is answered at once.
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

// takenBack notes that an offer which waits is taken back.
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

// goneBack checks, of a machine that has no more work of this instant, that no offer waits that was taken back.
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

// read checks that it was an offer's turn, as it gets its pages.
func (or *queueOracle) read(n *world.Node, t *world.Transfer) {
	i := slices.IndexFunc(or.at(n).waiters, func(o waiter) bool {
		return o.offer == t.Grant && o.peer == t.Link.Peer && !o.reading
	})
	if i < 0 {
		return // The reader was served; it is in the scenarios' hands or reads again.
	}
	w := &or.at(n).waiters[i]
	if or.inTurn(n, w, i); or.w.Failure != nil {
		return
	}
	or.overtaking(n, w, i)
	w.reading, w.keys = true, 0
}

// stopped notes that the machine wants a read to end: that is all it can do for its answer to come.
func (or *queueOracle) stopped(n *world.Node, t *world.Transfer) {
	for i := range or.at(n).waiters {
		if o := &or.at(n).waiters[i]; o.readBy(t) {
			o.stopped = true
		}
	}
}

// readEnded has the answer to an offer due, as the end of its read is told, if anybody waits for it.
func (or *queueOracle) readEnded(n *world.Node, t *world.Transfer) {
	my := or.at(n)
	my.waiters = slices.DeleteFunc(my.waiters, func(o waiter) bool { return o.readBy(t) && o.conn == 0 })
	for i := range my.waiters {
		if o := &my.waiters[i]; o.readBy(t) {
			o.atOnce, o.stopped, o.unwanted = true, false, false
		}
	}
}

func (o *waiter) readBy(t *world.Transfer) bool {
	return o.reading && o.offer == t.Grant && o.peer == t.Link.Peer
}

// linked says whether a waiter could be served if there were pages: an offer cannot before its
// sender's plane is connected.
func (o *waiter) linked(n *world.Node) bool {
	return o.offer == 0 || slices.ContainsFunc(n.Links,
		func(l *world.Link) bool { return l.Peer == o.peer && l.Given && !l.Told && !l.Dropped })
}

// distinct counts keys that differ.
func distinct(keys [][]byte) (n int) {
	for i, k := range keys {
		if !slices.ContainsFunc(keys[:i], func(o []byte) bool { return string(o) == string(k) }) {
			n++
		}
	}
	return n
}
