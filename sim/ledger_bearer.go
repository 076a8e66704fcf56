package sim

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
)

// What is promised of plain senders (rule M5): their pages are nobody else's until
// lease and Residual are over; on leased planes their chunks are never readable, unless
// trust_uncommitted says at once; on fenced planes their grants open nothing.

var checkPlainStore = newCheck("S3", "stores of plain senders")

// bearer says whether a grant is for whoever knows of it.
func (g *grant) bearer() bool { return g != nil && g.peer == effects.Incarnation{} }

// lapsed says whether a bearer grant on a leased plane is over. Nobody tells: its time is.
func (l *ledger) lapsed(n *node, id effects.GrantID) bool {
	g := n.grants[id]
	return l.w.plan.Leased && g.bearer() && l.w.clock(n) >= g.ends.Add(l.w.plan.Rank.Residual)
}

// trusted notes that chunks of a plain sender are readable from their grant on.
func (l *ledger) trusted(n *node, keys [][]byte) {
	if len(keys) == 0 {
		return
	}
	n.seen.ready = true
	for _, name := range keys {
		known := false
		for k, text := range l.keys {
			if text != nil && bytes.Equal(text, name) {
				known, l.stored[n.id][k] = true, true
				n.seen.lapsing.arrived(uint32(k), l.w.now)
			}
		}
		if !known {
			n.seen.lapsing.trusted(n.keyHash(name), l.w.now)
		}
	}
}

// plainStoring checks one store of a plain sender: its page must still be its own.
func (l *ledger) plainStoring(x *plainWrite, half int) {
	l.judged(checkPlainStore)
	pg := &x.pool.pages[x.page]
	n := x.pool.node
	switch {
	case pg.granted != x.grant:
		l.fail(checkPlainStore, "a store of a plain sender lands on page %d of node %d, which is granted to %d instead of %d",
			n.itsPage(x.page), n.it(), pg.granted, x.grant)
	case half == 1:
		pg.whole = x.grant
	}
}

// plainStill ends one.
func (l *ledger) plainStill(x *plainWrite) {
	if !x.over {
		x.over = true
		x.pool.pages[x.page].writers--
		x.pool.touch(x.page)
	}
}

// exempt says whether a page that a Get gave may hold anything: it is a plain sender's
// who was trusted, and who has not written all of it.
func (l *ledger) exempt(n *node, index uint32) bool {
	pg := &n.pool.pages[index]
	return pg.trusted != 0 && pg.whole != pg.trusted
}
