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

// landedOracle judges each peer's share of a pool, including chunks that have landed (S18).
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

// landedLife records the peers of an incarnation of a node.
type landedLife struct {
	callers []caller `snap:"skip"`
}

func (s *landedLife) startReply() { *s = landedLife{callers: s.callers[:0]} }

// caller is a peer that requested pages of a receiver. A receiver certainly knows a peer with granted pages until the
// peer has been silent for as long as a chunk is kept, or the plane reports that the peer is lost.
type caller struct {
	peer   effects.Incarnation
	at     int64
	served bool
}

// called records the peer of a request. A stranger's message in another peer's name does not count.
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

// gone records that the machine is notified of a peer's end.
func (or *landedOracle) gone(n *world.Node, peer effects.Incarnation) {
	or.at(n).callers = slices.DeleteFunc(or.at(n).callers, func(c caller) bool { return c.peer == peer })
}

// sharesPages reports whether n limits the share of the pool that a single peer may have.
func sharesPages(n *world.Node) bool { return pd.Its(n).Cfg.PeerSharePct < 100 }

// took records the peer that may store into the given pages.
func (or *landedOracle) took(n *world.Node, pages []effects.Page, who effects.Incarnation) {
	for _, p := range pages {
		n.Pool.Pages[p.Index].By = who
	}
}

// reads records the peer from which pages are read.
func (or *landedOracle) reads(n *world.Node, e *effects.Transfer) {
	if !e.Read {
		return
	}
	for i := range e.Pairs {
		n.Pool.Pages[e.Pairs[i].Local.Index].By = e.Peer
	}
}

// crowds checks that a peer with a new grant has no more than a peer's share of the pool while another peer is active.
// Chunks that have landed and are still kept count as well (S18). Pages that were promised before count where they were
// promised.
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
	// If the table of inbound peers is full, the machine may have dropped a peer.
	full := pd.StatsOf(n).InboundPeers >= int(pd.Its(n).Cfg.PeersMax)
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

// keeps reports whether the machine would deliver this page for the key of the chunk in the page.
func (or *landedOracle) keeps(n *world.Node, index uint32) bool {
	pg := &n.Pool.Pages[index]
	if pg.Chunk == 0 || pg.Chunk != pg.Since {
		return false
	}
	p, ok := pd.ReadyAt(n, or.w.Keys[pg.Stamps[0].Key()])
	return ok && p.Index == index && p.Generation == pg.Chunk
}

// takenOf returns how many pages may count against a peer's share, for any peer.
func (j *judge) takenOf(n *world.Node, s *rank.Stats) int {
	if sharesPages(n) {
		return s.PagesTotal - s.PagesFree - s.PagesEvictable - j.others.both.at(n).has
	}
	return s.PagesGranted + s.PagesQuarantined + s.PagesPromised
}

// whose returns the value of Page.By for pages that are used for this request. A peer without an incarnation is
// identified by the connection.
func (w *waiter) whose() (who effects.Incarnation) {
	if who = w.peer; who == (effects.Incarnation{}) {
		binary.BigEndian.PutUint64(who[:], ^w.conn)
	}
	return who
}

// takenBy returns how many pages may count against the share of a request's peer. Pages that were last used for another
// peer do not count.
func (or *queueOracle) takenBy(n *world.Node, s *rank.Stats, w *waiter) (most int) {
	most = or.takenOf(n, s)
	named := w.peer != effects.Incarnation{}
	if !sharesPages(n) || named && !w.known || s.PagesPromised > 0 {
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
