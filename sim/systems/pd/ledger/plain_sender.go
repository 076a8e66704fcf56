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

// plainSenderOracle judges what plain senders do, and what is done with their pages.
type plainSenderOracle struct{ oracleBase }

func (*plainSenderOracle) subscribe(l *oracle.Subscriptions[plainSenderOracle]) {
	oracle.On(l, func(o *plainSenderOracle, _ *oracle.Call, e pd.PlainWriteStored) { o.verifyStore(e.Write, e.Half) })
	oracle.On(l, func(o *plainSenderOracle, _ *oracle.Call, e pd.PlainWriteEnded) { o.endStore(e.Write) })
}

// isExpired reports whether a bearer grant on a leased plane is over. No notification says so: the grant ends by time
// alone, when the lease and Residual are over.
func (or *plainSenderOracle) isExpired(n *world.Node, id effects.GrantID) bool {
	g := n.Grants[id]
	return or.w.Conditions.Leased && g.IsBearer() && or.w.ReadClock(n) >= g.ExpiresAt.Add(or.w.Setup.Rank.Residual)
}

// recordForeign records that the chunks of a plain sender of a trust domain are readable from the time of their grant on.
func (or *plainSenderOracle) recordForeign(n *world.Node, realm effects.Realm, keys [][]byte) {
	lapsed := or.oracles().lapses.stateOf(n)
	if len(keys) == 0 {
		return
	}
	or.oracles().getWaits.stateOf(n).chunkReady = true
	for _, name := range keys {
		known := false
		for k, text := range or.w.Keys {
			if text != nil && bytes.Equal(text, name) && realm == 0 {
				known, or.facts().wholeKeys[n.ID][k] = true, true
				lapsed.recordWhole(uint32(k), or.w.Now)
			}
		}
		if !known {
			lapsed.recordForeign(pd.KeyHashIn(n, realm, name), or.w.Now)
		}
	}
}

// verifyStore checks a store of a plain sender: the page must still be granted to that sender (S3).
func (or *plainSenderOracle) verifyStore(x *pd.PlainWrite, half int) {
	or.countJudged(checkPlainStore)
	pg := &x.Pool.Pages[x.Page]
	n := x.Pool.Node
	switch {
	case pg.Granted != x.Grant:
		or.fail(checkPlainStore,
			"a store of a vanilla sender lands on page %d of node %d, which is granted to %d instead of %d",
			n.PageSubject(x.Page), n.AsSubject(), pg.Granted, x.Grant)
	case half == 1:
		pg.WholeGrant = x.Grant
	}
}

// endStore ends a store of a plain sender.
func (or *plainSenderOracle) endStore(x *pd.PlainWrite) {
	if !x.Finished {
		x.Finished = true
		x.Pool.Pages[x.Page].Writers--
		x.Pool.UpdateInUse(x.Page)
	}
}

// isExempt reports whether a page that a Get delivered may hold anything: the page belongs to a trusted plain sender
// that has not written all of the page.
func (or *plainSenderOracle) isExempt(n *world.Node, index uint32) bool {
	pg := &n.Pool.Pages[index]
	return pg.TrustedGrant != 0 && pg.WholeGrant != pg.TrustedGrant
}
