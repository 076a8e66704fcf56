package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
)

var checkPageShare = oracle.NewCheck("S18", "shares of pages")

// landedOracle judges shares of a pool, what landed included.
type landedOracle struct {
	judge
	perLife[landedLife]
}

type landedLife struct {
	callers []caller `snap:"skip"`
}

func (s *landedLife) empty() { *s = landedLife{callers: s.callers[:0]} }

// A caller is a peer that asked a receiver for pages. One that was granted some is certainly known, until it was not
// heard of for as long as a chunk is kept, or its plane says that it is gone.
type caller struct {
	peer   effects.Incarnation
	at     int64
	served bool
}

// called notes who asks. What a stranger says in another's name shows nobody to be there.
func (or *landedOracle) called(n *node, peer, us effects.Incarnation) {
	my := or.at(n)
	if !n.shared() || !n.believes(peer, us) {
		return
	}
	i := slices.IndexFunc(my.callers, func(c caller) bool { return c.peer == peer })
	if i < 0 {
		i = len(my.callers)
		my.callers = append(my.callers, caller{peer: peer})
	}
	my.callers[i].at = or.w.now
}

// gone notes that the machine is told of a peer's end.
func (or *landedOracle) gone(n *node, peer effects.Incarnation) {
	or.at(n).callers = slices.DeleteFunc(or.at(n).callers, func(c caller) bool { return c.peer == peer })
}

// shared says whether one peer may have less than all of the pool.
func (n *node) shared() bool { return n.cfg.PeerSharePct < 100 }

// crowds checks, as pages are granted to a peer, that it has no more than its share while another is there, what
// landed of it and is still kept included (S18).
func (or *landedOracle) crowds(n *node, e *effects.Grant) {
	if !n.shared() {
		return
	}
	for i := range n.pool.pages {
		if slices.ContainsFunc(e.Pages, func(p effects.Page) bool { return p.Index == uint32(i) }) {
			n.pool.pages[i].by = e.Peer
		}
	}
	contested := false
	for i := range or.at(n).callers {
		if c := &or.at(n).callers[i]; c.peer == e.Peer {
			c.served = true
		} else if c.served && n.shows(or.w.now).Sub(n.shows(c.at)) < n.cfg.ClaimTTL {
			contested = true
		}
	}
	// Where the table of guests is full, one may have had to go.
	if s := n.stats(); !contested || e.Peer == (effects.Incarnation{}) || s.Guests >= int(n.cfg.PeersMax) {
		or.void(checkPageShare)
		return
	}
	or.judged(checkPageShare)
	has := 0
	for i := range n.pool.pages {
		if pg := &n.pool.pages[i]; pg.by == e.Peer && (pg.granted != 0 || !n.caches && or.keeps(n, uint32(i))) {
			has++
		}
	}
	if has > n.share() {
		or.fail(checkPageShare,
			"node %d grants %d pages to a peer that has %d now, of %d that it may have while others are there",
			n.it(), len(e.Pages), has, n.share())
	}
}

// keeps says whether a page is what the machine would give for the key of the chunk that is in it.
func (or *landedOracle) keeps(n *node, index uint32) bool {
	pg := &n.pool.pages[index]
	if pg.chunk == 0 || pg.chunk != pg.since {
		return false
	}
	p, ok := n.ready(or.truth().keys[pg.stamps[0].key()])
	return ok && p.Index == index && p.Generation == pg.chunk
}

// taken is how many pages may count against a peer's share, whoever that is.
func (n *node) taken(s *rank.Stats) int {
	if n.shared() {
		return s.PagesTotal - s.PagesFree - s.Spare
	}
	return s.PagesGranted + s.PagesQuarantined
}
