package ledger

import (
	"bytes"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The promises about plain senders, which have no identity (rule M5). The pages that are granted to a plain sender have
// no second user until the lease and the residual time (Residual) are over. On leased planes the chunks of a plain
// sender are never readable, unless trust_uncommitted is set, and then the chunks are readable at once. On fenced
// planes a grant to a plain sender allows no writes.

var checkPlainStore = oracle.NewCheck("S3", "stores of vanilla senders")

// bearerOracle judges what plain senders do, and what is done with their pages.
type bearerOracle struct{ judge }

func (*bearerOracle) listen(l *oracle.Listen[bearerOracle]) {
	oracle.On(l, func(o *bearerOracle, _ *oracle.Call, e pd.PlainStored) { o.plainStoring(e.Write, e.Half) })
	oracle.On(l, func(o *bearerOracle, _ *oracle.Call, e pd.PlainStill) { o.plainStill(e.Write) })
}

// lapsed reports whether a bearer grant on a leased plane is over. No notification says so: the grant ends by time
// alone, when the lease and Residual are over.
func (or *bearerOracle) lapsed(n *world.Node, id effects.GrantID) bool {
	g := n.Grants[id]
	return or.w.Setting.Leased && g.Bearer() && or.w.Clock(n) >= g.Ends.Add(or.w.Plan.Rank.Residual)
}

// trusted records that the chunks of a plain sender are readable from the time of their grant on.
func (or *bearerOracle) trusted(n *world.Node, keys [][]byte) {
	lapsed := or.all().lapsed.at(n)
	if len(keys) == 0 {
		return
	}
	or.all().hope.at(n).ready = true
	for _, name := range keys {
		known := false
		for k, text := range or.w.Keys {
			if text != nil && bytes.Equal(text, name) {
				known, or.truth().stored[n.ID][k] = true, true
				lapsed.arrived(uint32(k), or.w.Now)
			}
		}
		if !known {
			lapsed.trusted(pd.KeyHashOf(n, name), or.w.Now)
		}
	}
}

// plainStoring checks a store of a plain sender: the page must still be granted to that sender (S3).
func (or *bearerOracle) plainStoring(x *pd.PlainWrite, half int) {
	or.judged(checkPlainStore)
	pg := &x.Pool.Pages[x.Page]
	n := x.Pool.Node
	switch {
	case pg.Granted != x.Grant:
		or.fail(checkPlainStore,
			"a store of a vanilla sender lands on page %d of node %d, which is granted to %d instead of %d",
			n.ItsPage(x.Page), n.It(), pg.Granted, x.Grant)
	case half == 1:
		pg.Whole = x.Grant
	}
}

// plainStill ends a store of a plain sender.
func (or *bearerOracle) plainStill(x *pd.PlainWrite) {
	if !x.Over {
		x.Over = true
		x.Pool.Pages[x.Page].Writers--
		x.Pool.Touch(x.Page)
	}
}

// exempt reports whether a page that a Get delivered may hold anything: the page belongs to a trusted plain sender that
// has not written all of the page.
func (or *bearerOracle) exempt(n *world.Node, index uint32) bool {
	pg := &n.Pool.Pages[index]
	return pg.Trusted != 0 && pg.Whole != pg.Trusted
}
