package sim

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is promised of plain senders (rule M5): their pages are nobody else's until
// lease and Residual are over; on leased planes their chunks are never readable, unless
// trust_uncommitted says at once; on fenced planes their grants open nothing.

var checkPlainStore = oracle.NewCheck("S3", "stores of plain senders")

// bearerOracle judges what plain senders do, and what is done with their pages.
type bearerOracle struct{ judge }

// bearer says whether a grant is for whoever knows of it.
func (g *grant) bearer() bool { return g != nil && g.peer == effects.Incarnation{} }

// lapsed says whether a bearer grant on a leased plane is over. Nobody tells: its time is.
func (or *bearerOracle) lapsed(n *node, id effects.GrantID) bool {
	g := n.grants[id]
	return or.w.plan.Leased && g.bearer() && or.w.clock(n) >= g.ends.Add(or.w.plan.Rank.Residual)
}

// trusted notes that chunks of a plain sender are readable from their grant on.
func (or *bearerOracle) trusted(n *node, keys [][]byte) {
	lapsed := or.all().lapsed.at(n)
	if len(keys) == 0 {
		return
	}
	or.all().hope.at(n).ready = true
	for _, name := range keys {
		known := false
		for k, text := range or.truth().keys {
			if text != nil && bytes.Equal(text, name) {
				known, or.truth().stored[n.id][k] = true, true
				lapsed.arrived(uint32(k), or.w.now)
			}
		}
		if !known {
			lapsed.trusted(n.keyHash(name), or.w.now)
		}
	}
}

// plainStoring checks one store of a plain sender: its page must still be its own.
func (or *bearerOracle) plainStoring(x *plainWrite, half int) {
	or.judged(checkPlainStore)
	pg := &x.pool.pages[x.page]
	n := x.pool.node
	switch {
	case pg.granted != x.grant:
		or.fail(checkPlainStore,
			"a store of a plain sender lands on page %d of node %d, which is granted to %d instead of %d",
			n.itsPage(x.page), n.it(), pg.granted, x.grant)
	case half == 1:
		pg.whole = x.grant
	}
}

// plainStill ends one.
func (or *bearerOracle) plainStill(x *plainWrite) {
	if !x.over {
		x.over = true
		x.pool.pages[x.page].writers--
		x.pool.touch(x.page)
	}
}

// exempt says whether a page that a Get gave may hold anything: it is a plain sender's
// who was trusted, and who has not written all of it.
func (or *bearerOracle) exempt(n *node, index uint32) bool {
	pg := &n.pool.pages[index]
	return pg.trusted != 0 && pg.whole != pg.trusted
}
