package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Some tables of a machine have rows for each peer. No peer may have more rows of such a table than the peer leaves
// free (S18). Where a fact is unknown, the ledger counts fewer rows.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkSharesCounted = oracle.NewCheck("S18", "shares, counted twice")
	checkOfferShare    = oracle.NewCheck("S18", "shares of offers")
	checkWaitShare     = oracle.NewCheck("S18", "shares of pending requests")
	checkTurnedAway    = oracle.NewCheck("S18", "requests turned away")
	checkGrantShare    = oracle.NewCheck("S18", "shares of grants")
	checkRefusedAgain  = oracle.NewCheck("L8", "retries of what is granted")
)

// shareOracle judges the shares of peers in a machine's tables.
type shareOracle struct{ judge }

func (*shareOracle) listen(l *oracle.Listen[shareOracle]) {
	oracle.On(l, func(o *shareOracle, _ *oracle.Call, e counted) {
		if o.recounts(e.node) {
			o.givenBack(e.node, false)
		}
	})
}

// sharedNames contains the names of the tables in which each peer has a share of the rows.
//
//kvferry:table
var sharedNames = [rank.SharedCount]string{
	rank.SharedRequests:     "pending requests",
	rank.SharedDoneMessages: "notifications",
	rank.SharedDoneAddrs:    "done addresses",
	rank.SharedOffers:       "deferred offers",
	rank.SharedLocations:    "remote locations of offers",
	rank.SharedClassRows:    "reasons to stay",
	rank.SharedClaims:       "further claims",
}

// givenBack checks that the machine's counts of the peers' rows match the tables, and are zero when all should be
// quiet.
func (or *shareOracle) givenBack(n *world.Node, quiet bool) {
	or.judged(checkSharesCounted)
	counted, there := pd.SharesOf(n)
	for i, name := range sharedNames {
		if counted[i] != there[i] || quiet && there[i] != 0 {
			or.fail(checkSharesCounted, "node %d counts %d %s that peers have of their shares, there are %d",
				n.It(), counted[i], name, there[i])
			return
		}
	}
}

// keepsShare checks a sender's share when a receiver keeps a further offer: no peer has more offers, or more chunks in
// offers, than the peer leaves free. Offers that may be over by now are not counted.
func (or *shareOracle) keepsShare(n *world.Node, newest *keptOffer) {
	kept := or.all().kept.at(n)
	or.judged(checkOfferShare)
	offers, allOffers, chunks, allChunks := 0, 0, 0, 0
	for i := range kept.kept {
		k := &kept.kept[i]
		if !or.all().kept.sure(n, k) {
			continue
		}
		here := 0
		for m := range k.chunks {
			if !k.chunks[m].perhaps {
				here++
			}
		}
		if here == 0 {
			continue
		}
		allOffers, allChunks = allOffers+1, allChunks+here
		if k.peer == newest.peer {
			offers, chunks = offers+1, chunks+here
		}
	}
	if most := int(pd.Its(n).Cfg.OffersMax); offers+allOffers > most+1 {
		or.fail(checkOfferShare, "node %d keeps %d offers of one peer, and %d in all, in a table of %d",
			n.It(), offers, allOffers, most)
	}
	if most := int(pd.Its(n).Cfg.LocationsMax); chunks+allChunks > most+len(newest.chunks) && or.w.Failure == nil {
		or.fail(checkOfferShare, "node %d keeps %d chunks of one peer, and %d in all, in a table of %d",
			n.It(), chunks, allChunks, most)
	}
}

// waits checks, after the step in which a request arrived, that the request waits only if the peer may have a further
// row in the table.
func (or *shareOracle) waits(n *world.Node, s *rank.Stats) {
	queue := or.all().queue.at(n)
	came := queue.newcomer
	queue.newcomer = 0
	if came == 0 || len(queue.waiters) == 0 {
		return
	}
	w := &queue.waiters[len(queue.waiters)-1]
	if w.request != came || w.keys == 0 || w.reading || w.peer == (effects.Incarnation{}) {
		return // The request was served or refused, or the peer has no identity.
	}
	or.judged(checkWaitShare)
	of := 0
	for i := range queue.waiters {
		if o := &queue.waiters[i]; o.peer == w.peer && o.keys > 0 && !o.reading {
			of++
		}
	}
	if of+s.PendingRequests > int(pd.Its(n).Cfg.WaitersMax)+1 {
		or.fail(checkWaitShare, "node %d has %d requests wait of one peer, and %d in all, in a table of %d",
			n.It(), of, s.PendingRequests, pd.Its(n).Cfg.WaitersMax)
	}
}

// turnedAway checks that an allocation request is refused a place in the queue only if the peer has used up the peer's
// share. The reply has been decoded already.
func (or *shareOracle) turnedAway(n *world.Node, w *waiter) {
	m := &or.truth().reply.m
	queue := or.all().queue.at(n)
	if w.keys == 0 || w.offer != 0 || !m.HasExt || effects.CodeFromWire(m.Ext.Code) != effects.TooMany {
		return
	}
	or.judged(checkTurnedAway)
	of, all := 0, 0
	for i := range queue.waiters {
		if o := &queue.waiters[i]; o.keys > 0 && !o.reading {
			if all++; o.peer == w.peer {
				of++
			}
		}
	}
	if of+all < int(pd.Its(n).Cfg.WaitersMax) {
		or.fail(checkTurnedAway,
			"node %d has no room for request %d to wait, with %d of %d waiting of its peer, in a table of %d",
			n.It(), oracle.Message(w.request), of, all, pd.Its(n).Cfg.WaitersMax)
	}
}

// sharing checks that a grant is made to a peer only if the peer may have a further grant.
func (or *shareOracle) sharing(n *world.Node, e *world.Grant) {
	if e.Peer == (effects.Incarnation{}) || or.w.Script != nil {
		or.void(checkGrantShare)
		return
	}
	or.judged(checkGrantShare)
	of, all := 0, 0
	for i := range n.Pool.Pages {
		id := n.Pool.Pages[i].Granted
		if id == 0 || id == e.ID {
			continue
		}
		g := n.Grants[id]
		if g == nil || g.Peer == (effects.Incarnation{}) || n.FirstUnder(g) != uint32(i) {
			continue // The end of a grant to a peer without an identity is unknown.
		}
		if all++; g.Peer == e.Peer {
			of++
		}
	}
	if of+all >= int(pd.Its(n).Cfg.GrantsMax) {
		or.fail(checkGrantShare, "node %d gives a grant to a peer that has %d of %d already, in a table of %d",
			n.It(), of, all, pd.Its(n).Cfg.GrantsMax)
	}
}

// refusedAgain checks that a retry of an operation with a grant in force is not refused: the result of the first
// attempt stays valid, whatever happened to the receiver since. A stranger, and a retry that names different keys, may
// be refused.
func (or *shareOracle) refusedAgain(n *world.Node, w *waiter, g *world.Grant) {
	m := &or.truth().reply.m
	code := effects.CodeFromWire(m.Ext.Code)
	or.judged(checkRefusedAgain)
	if m.HasExt && m.AllocFailed && code != effects.Stale && code != effects.Mismatch && n.Open(g) {
		or.fail(checkRefusedAgain, "node %d refuses request %d, although grant %d of that operation is in force",
			n.It(), oracle.Message(w.request), n.ItsGrant(g.ID))
	}
}
