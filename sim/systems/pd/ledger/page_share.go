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

// pageShareOracle judges each peer's share of a pool, including chunks that have landed (S18).
type pageShareOracle struct {
	oracleBase
	perIncarnation[pageShareState]
}

func (*pageShareOracle) subscribe(l *oracle.Subscriptions[pageShareOracle]) {
	oracle.On(l, func(o *pageShareOracle, _ *oracle.Call, e world.GrantingPages) {
		o.recordTaken(e.Node, e.Effect.Pages, e.Effect.Peer)
	})
	oracle.On(l, func(o *pageShareOracle, _ *oracle.Call, e world.StartingTransfer) { o.recordRead(e.Node, e.Effect) })
	oracle.On(l, func(o *pageShareOracle, _ *oracle.Call, e world.LinkLost) { o.removePeer(e.Node, e.Peer) })
}

// pageShareState records the peers of an incarnation of a node.
type pageShareState struct {
	peers []pagePeer `snap:"skip"`
}

func (s *pageShareState) clearForReuse() { *s = pageShareState{peers: s.peers[:0]} }

// pagePeer is a peer that requested pages of a receiver. A receiver certainly knows a peer with granted pages until the
// peer has been silent for as long as a chunk is kept, or the plane reports that the peer is lost.
type pagePeer struct {
	peer        effects.Incarnation
	lastRequest int64
	served      bool
}

// recordRequest records the peer of a request. A stranger's message in another peer's name does not count.
func (or *pageShareOracle) recordRequest(n *world.Node, peer, ownName effects.Incarnation) {
	state := or.stateOf(n)
	if !hasPageShares(n) && !hasOriginShares(n) || !pd.IsGenuine(n, peer, ownName) {
		return
	}
	i := slices.IndexFunc(state.peers, func(c pagePeer) bool { return c.peer == peer })
	if i < 0 {
		i = len(state.peers)
		state.peers = append(state.peers, pagePeer{peer: peer})
	}
	state.peers[i].lastRequest = or.w.Now
}

// removePeer records that the machine is notified of a peer's end.
func (or *pageShareOracle) removePeer(n *world.Node, peer effects.Incarnation) {
	or.stateOf(n).peers = slices.DeleteFunc(or.stateOf(n).peers, func(c pagePeer) bool { return c.peer == peer })
}

// hasPageShares reports whether n limits the share of the pool that a single peer may have.
func hasPageShares(n *world.Node) bool { return pd.InfoOf(n).Cfg.PeerSharePct < 100 }

// recordTaken records the peer that may store into the given pages.
func (or *pageShareOracle) recordTaken(n *world.Node, pages []effects.Page, peer effects.Incarnation) {
	for _, p := range pages {
		n.Pool.Pages[p.Index].GrantedTo = peer
	}
}

// recordRead records the peer from which pages are read.
func (or *pageShareOracle) recordRead(n *world.Node, e *effects.Transfer) {
	if !e.Read {
		return
	}
	for i := range e.Pairs {
		n.Pool.Pages[e.Pairs[i].Local.Index].GrantedTo = e.Peer
	}
}

// verifyShare checks that a peer with a new grant has no more than a peer's share of the pool while another peer is
// active. Chunks that have landed and are still kept count as well (S18), and while the peer is alone only the pages
// that it may still write. Pages that were promised before count where
// they were promised.
func (or *pageShareOracle) verifyShare(n *world.Node, e *world.Grant, promised bool) {
	if !hasPageShares(n) && !hasOriginShares(n) {
		return
	}
	contested := false
	for i := range or.stateOf(n).peers {
		if c := &or.stateOf(n).peers[i]; c.peer == e.Peer {
			c.served = true
		} else if c.served && n.ReadingAt(or.w.Now).Sub(n.ReadingAt(c.lastRequest)) < pd.InfoOf(n).Cfg.ClaimTTL {
			contested = true
		}
	}
	// If the table of inbound peers is full, the machine may have dropped a peer.
	full := pd.StatsOf(n).InboundPeers >= or.rowsForAll(n)
	if promised || e.Peer == (effects.Incarnation{}) {
		or.countVoid(checkPageShare)
		return
	}
	or.countJudged(checkPageShare)
	ofPeer, contested := 0, contested && !full
	for i := range n.Pool.Pages {
		pg := &n.Pool.Pages[i]
		if pg.GrantedTo == e.Peer && (pg.Granted != 0 || contested && !n.IsCache && or.isKeptPage(n, uint32(i))) {
			ofPeer++
		}
	}
	if ofPeer > pageShare(n) {
		or.fail(checkPageShare,
			"node %d grants %d pages to a peer that has %d now, of at most %d",
			n.AsSubject(), len(e.Pages), ofPeer, pageShare(n))
		return
	}
	or.verifyOriginShare(n, e)
}

// isKeptPage reports whether the machine would deliver this page for the key of the chunk in the page.
func (or *pageShareOracle) isKeptPage(n *world.Node, index uint32) bool {
	pg := &n.Pool.Pages[index]
	if pg.ChunkGeneration == 0 || pg.ChunkGeneration != pg.GrantGeneration {
		return false
	}
	p, ok := pd.ReadyAt(n, or.w.Keys[pg.Stamps[0].Key()])
	return ok && p.Index == index && p.Generation == pg.ChunkGeneration
}

// sharedPagesMax returns how many pages may count against a peer's share, for any peer.
func (j *oracleBase) sharedPagesMax(n *world.Node, s *rank.Stats) int {
	if hasPageShares(n) {
		return s.PagesTotal - s.PagesFree - s.PagesEvictable - j.allOracles.dualRole.stateOf(n).reservedPages
	}
	return s.PagesGranted + s.PagesQuarantined + s.PagesPromised
}

// pageOwner returns the value of Page.By for pages that are used for this request. A peer without an incarnation is
// identified by the connection.
func (w *pendingRequest) pageOwner() (owner effects.Incarnation) {
	if owner = w.peer; owner == (effects.Incarnation{}) {
		binary.BigEndian.PutUint64(owner[:], ^w.conn)
	}
	return owner
}

// peerPagesMax returns how many pages may count against the share of a request's peer. Pages that were last used for
// another peer do not count.
func (or *queueOracle) peerPagesMax(n *world.Node, s *rank.Stats, w *pendingRequest) (limit int) {
	limit = or.sharedPagesMax(n, s)
	hasName := w.peer != effects.Incarnation{}
	if !hasPageShares(n) || hasName && !w.nameKnown || s.PagesPromised > 0 {
		return limit
	}
	count, owner := 0, w.pageOwner()
	for i := range n.Pool.Pages {
		if n.Pool.Pages[i].GrantedTo == owner {
			count++
		}
	}
	return min(limit, count)
}
