package ledger

import (
	"encoding/binary"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

var checkPageShare = oracle.NewCheck("S18", "shares of pages")

// landedOracle judges shares of a pool, what landed included.
type landedOracle struct {
	judge
	perLife[landedLife]
}

func (*landedOracle) listen(l *oracle.Listen[landedOracle]) {
	oracle.On(l, func(o *landedOracle, _ *oracle.Call, e world.Granting) {
		o.took(e.Node, e.Effect.Pages, e.Effect.Peer)
	})
	oracle.On(l, func(o *landedOracle, _ *oracle.Call, e world.Transferring) { o.reads(e.Node, e.Effect) })
	oracle.On(l, func(o *landedOracle, _ *oracle.Call, e world.LinkLost) { o.gone(e.Node, e.Peer) })
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
func (or *landedOracle) called(n *world.Node, peer, us effects.Incarnation) {
	my := or.at(n)
	if !sharesPages(n) || !pd.Believes(n, peer, us) {
		return
	}
	i := slices.IndexFunc(my.callers, func(c caller) bool { return c.peer == peer })
	if i < 0 {
		i = len(my.callers)
		my.callers = append(my.callers, caller{peer: peer})
	}
	my.callers[i].at = or.w.Now
}

// gone notes that the machine is told of a peer's end.
func (or *landedOracle) gone(n *world.Node, peer effects.Incarnation) {
	or.at(n).callers = slices.DeleteFunc(or.at(n).callers, func(c caller) bool { return c.peer == peer })
}

// shared says whether one peer may have less than all of the pool.
func sharesPages(n *world.Node) bool { return pd.Its(n).Cfg.PeerSharePct < 100 }

// took notes for whom pages are taken that a peer may store into.
func (or *landedOracle) took(n *world.Node, pages []effects.Page, who effects.Incarnation) {
	for _, p := range pages {
		n.Pool.Pages[p.Index].By = who
	}
}

// reads notes of whom what is read is.
func (or *landedOracle) reads(n *world.Node, e *effects.Transfer) {
	if !e.Read {
		return
	}
	for i := range e.Pairs {
		n.Pool.Pages[e.Pairs[i].Local.Index].By = e.Peer
	}
}

// crowds checks, of pages that were granted to a peer, that it has no more than its share while another is there, what
// landed of it and is still kept included (S18). Pages that were promised before count where they were promised.
func (or *landedOracle) crowds(n *world.Node, e *world.Grant, promised bool) {
	if !sharesPages(n) {
		return
	}
	contested := false
	for i := range or.at(n).callers {
		if c := &or.at(n).callers[i]; c.peer == e.Peer {
			c.served = true
		} else if c.served && n.Shows(or.w.Now).Sub(n.Shows(c.at)) < pd.Its(n).Cfg.ClaimTTL {
			contested = true
		}
	}
	// Where the table of guests is full, one may have had to go.
	full := pd.StatsOf(n).Guests >= int(pd.Its(n).Cfg.PeersMax)
	if promised || !contested || e.Peer == (effects.Incarnation{}) || full {
		or.void(checkPageShare)
		return
	}
	or.judged(checkPageShare)
	has := 0
	for i := range n.Pool.Pages {
		if pg := &n.Pool.Pages[i]; pg.By == e.Peer && (pg.Granted != 0 || !n.Caches && or.keeps(n, uint32(i))) {
			has++
		}
	}
	if has > shareOf(n) {
		or.fail(checkPageShare,
			"node %d grants %d pages to a peer that has %d now, of %d that it may have while others are there",
			n.It(), len(e.Pages), has, shareOf(n))
	}
}

// keeps says whether a page is what the machine would give for the key of the chunk that is in it.
func (or *landedOracle) keeps(n *world.Node, index uint32) bool {
	pg := &n.Pool.Pages[index]
	if pg.Chunk == 0 || pg.Chunk != pg.Since {
		return false
	}
	p, ok := pd.ReadyAt(n, or.w.Keys[pg.Stamps[0].Key()])
	return ok && p.Index == index && p.Generation == pg.Chunk
}

// takenOf is how many pages may count against a peer's share, whoever that is.
func (j *judge) takenOf(n *world.Node, s *rank.Stats) int {
	if sharesPages(n) {
		return s.PagesTotal - s.PagesFree - s.Spare - j.others.both.at(n).has
	}
	return s.PagesGranted + s.PagesQuarantined + s.Kept
}

// whose is what pages say of whom they were taken for: one without a name is his connection.
func (w *waiter) whose() (who effects.Incarnation) {
	if who = w.peer; who == (effects.Incarnation{}) {
		binary.BigEndian.PutUint64(who[:], ^w.conn)
	}
	return who
}

// takenBy is how many pages may count against the share of one who waits: none that were taken for another last.
func (or *queueOracle) takenBy(n *world.Node, s *rank.Stats, w *waiter) (most int) {
	most = or.takenOf(n, s)
	named := w.peer != effects.Incarnation{}
	if !sharesPages(n) || named && !w.known || s.Kept > 0 {
		return most
	}
	count, who := 0, w.whose()
	for i := range n.Pool.Pages {
		if n.Pool.Pages[i].By == who {
			count++
		}
	}
	return min(most, count)
}
