package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A node with an arena copies chunks into the arena in order to lease the copies to peers. From the Copy effect until
// the copy has settled, the source page and the target page belong to the copy. Then the page in the arena belongs to
// the reader of the chunk.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkArenaSource  = oracle.NewCheck("S2", "source pages of copies to an arena")
	checkArenaTarget  = oracle.NewCheck("S4", "target pages of copies to an arena")
	checkArenaMove    = oracle.NewCheck("S4", "copies of half pages to an arena")
	checkArenaShare   = oracle.NewCheck("S18", "shares of an arena")
	checkArenaLookups = oracle.NewCheck("S18", "shares of lookups that wait for copies")
	checkArenaLeased  = oracle.NewCheck("S4", "leased pages of an arena")
	checkArenaWhole   = oracle.NewCheck("S1", "content of leased arena pages")
	checkArenaEvicted = oracle.NewCheck("S4", "evictions of chunks that are being copied")
	checkArenaPins    = oracle.NewCheck("L2", "pins of copied pages")
	checkArenaRetry   = oracle.NewCheck("L8", "replies to retried lookups")
	checkArenaFree    = oracle.NewCheck("S5", "free arena pages")
)

// arenaOracle judges the copies that a node with an arena makes for peers.
type arenaOracle struct {
	oracleBase
	perIncarnation[arenaState]
}

func (*arenaOracle) subscribe(l *oracle.Subscriptions[arenaOracle]) {
	oracle.On(l, func(o *arenaOracle, _ *oracle.Call, e world.StartingCopy) { o.verifyCopy(e.Node, e.Copy) })
	oracle.On(l, func(o *arenaOracle, _ *oracle.Call, e world.CopyMoving) { o.verifyMove(e.Copy, e.Pair) })
	oracle.On(l, func(o *arenaOracle, _ *oracle.Call, e world.CopySettled) { o.endCopy(e.Copy) })
	oracle.On(l, func(o *arenaOracle, _ *oracle.Call, e stepCounted) {
		if e.node.ArenaPages > 0 {
			o.afterStep(e.node, e.stats)
		}
	})
}

// arenaState records the lookups to which an incarnation of a node has not replied. The node replies when the chunks
// are copied.
type arenaState struct {
	lookups       []copyLookup `snap:"skip"`
	repliedLookup uint64       `snap:"skip"` // a lookup that got a reply in this step; a retry may arrive in the same step
}

// copyLookup is a lookup that waits until the chunks are copied, with the message.
type copyLookup struct {
	pendingLookup
	body []byte
}

// lookup returns the record that lookups of all kinds have in common.
func (x *copyLookup) lookup() *pendingLookup { return &x.pendingLookup }

func (s *arenaState) clearForReuse() { *s = arenaState{lookups: s.lookups[:0]} }

// recordLookup records a lookup whose reply may come later.
func (or *arenaOracle) recordLookup(n *world.Node, request uint64, body []byte) {
	state := or.stateOf(n)
	state.lookups = append(state.lookups, copyLookup{newPendingLookup(n, request, &or.oracles().lookups.lookup), slices.Clone(body)})
}

// takeAnswered returns the lookup that a reply belongs to, for the oracle that judges the reply.
func (or *arenaOracle) takeAnswered(n *world.Node, request uint64, answer []byte) (body []byte) {
	state := or.stateOf(n)
	if len(state.lookups) > 0 && state.lookups[len(state.lookups)-1].request == request && !asksIntroduction(answer) {
		state.lookups = removeRetried(&or.oracleBase, state.lookups, (*copyLookup).lookup)
	}
	if i := slices.IndexFunc(state.lookups, func(x copyLookup) bool { return x.request == request }); i >= 0 {
		if x := &state.lookups[i]; state.lookups[len(state.lookups)-1].isRetryOf(&x.pendingLookup) {
			state.repliedLookup = request
		}
		body = state.lookups[i].body
		state.lookups = slices.Delete(state.lookups, i, i+1)
	}
	if or.countJudged(checkArenaRetry); body == nil && or.w.Requests[request-1].NeedsNoReply {
		or.fail(checkArenaRetry, "node %d replies to message %d, which was superseded by a retry", n.AsSubject(), oracle.Message(request))
	}
	return body
}

// removeSuperseded removes a lookup that was asked again in this step. Only the retry gets a reply.
func (or *arenaOracle) removeSuperseded(n *world.Node) {
	state := or.stateOf(n)
	state.lookups = removeSuperseded(&or.oracleBase, n, state.lookups, (*copyLookup).lookup)
	former := state.repliedLookup
	if state.repliedLookup = 0; former == 0 {
		return
	}
	if or.countJudged(checkArenaRetry); len(state.lookups) > 0 && state.lookups[len(state.lookups)-1].request > former {
		or.fail(checkArenaRetry, "node %d replies to message %d, which is superseded by a retry in this step", n.AsSubject(),
			oracle.Message(former))
	}
}

// verifyCopy checks a Copy effect when the machine emits the effect, in the step that handles the lookup for which the
// chunks are copied.
func (or *arenaOracle) verifyCopy(n *world.Node, c *world.Copy) {
	q := &or.oracles().lookups.lookup.Ext
	c.Peer, c.Operation = effects.Incarnation(q.Incarnation), q.Operation
	for _, p := range c.Pairs {
		or.countJudged(checkArenaSource, checkArenaTarget)
		src, dst := &n.Pool.Pages[p.From.Index], &n.Pool.Pages[p.To.Index]
		switch {
		case n.InArena(p.From.Index) || src.LastGeneration != p.From.Generation || src.Writers > 0 || src.Granted != 0 &&
			!or.oracles().plainSenders.isExpired(n, src.Granted) || !or.isWhole(n.Pool, src, p.From.Length):
			or.fail(checkArenaSource, "node %d copies page %d for a peer, and the page does not hold a ready chunk", n.AsSubject(),
				n.PageSubject(p.From.Index))
		case !n.InArena(p.To.Index) || dst.Writers > 0 || dst.Readers > 0 || p.To.Generation <= dst.LastGeneration ||
			p.To.Generation != dst.Generation || p.To.Length != p.From.Length:
			or.fail(checkArenaTarget, "node %d copies to page %d for a peer, and the page is not a free page of the arena", n.AsSubject(),
				n.PageSubject(p.To.Index))
		}
		if id, page := or.oracles().readLeases.findLease(n, []effects.Page{p.To}); id != 0 && or.w.Failure == nil {
			or.fail(checkArenaTarget, "node %d copies to page %d while the page may be read under grant %d", n.AsSubject(), n.PageSubject(page),
				n.GrantSubject(id))
		}
		if or.w.Failure != nil {
			return
		}
		dst.LastGeneration, dst.GrantedTo = p.To.Generation, c.Peer
		src.Readers++
		dst.Writers++
		n.Pool.UpdateInUse(p.From.Index)
		n.Pool.UpdateInUse(p.To.Index)
	}
	or.verifyShare(n, c.Peer)
}

// isWhole reports whether the first length bytes of a page come from a single fill of a single chunk, or did before a bit
// was changed at rest. A false chunk of a stranger counts as whole: domainOracle judges to whom it is lent.
func (or *arenaOracle) isWhole(pool *world.Pool, pg *world.Page, length uint32) bool {
	if pg.WasFlippedIn(pg.LastGeneration) || or.oracles().domains.mayBeForeign(pg) {
		return true
	}
	for part := range pool.PartCount(length) {
		if s := pg.Stamps[part]; s == 0 || s.Part() != part || s.Key() != pg.Stamps[0].Key() ||
			s.Fill() != pg.Stamps[0].Fill() {
			return false
		}
	}
	return true
}

// verifyShare checks a peer's share of the arena and of the lookups in service: the peer must leave free at least as
// much as the peer uses.
func (or *arenaOracle) verifyShare(n *world.Node, peer effects.Incarnation) {
	or.countJudged(checkArenaShare, checkArenaLookups)
	ofPeer, total := or.countTaken(n, peer)
	if limit := n.ArenaPages; ofPeer > limit-total+1 {
		or.fail(checkArenaShare, "node %d has %d of %d arena pages for one peer, and %d for all", n.AsSubject(), ofPeer, limit, total)
		return
	}
	type service struct {
		peer      effects.Incarnation
		operation uint64
	}
	served, peerLookups, pinned := map[service]bool{}, 0, 0
	for _, c := range or.w.Copies {
		if c.Pool != n.Pool || !c.InUse {
			continue
		}
		if pinned += len(c.Pairs); served[service{c.Peer, c.Operation}] {
			continue
		}
		served[service{c.Peer, c.Operation}] = true
		if c.Peer == peer {
			peerLookups++
		}
	}
	if limit := int(pd.InfoOf(n).Cfg.PushesMax); peerLookups > limit-len(served)+1 {
		or.fail(checkArenaLookups, "node %d copies for %d lookups of a peer and for %d lookups in all, in a table of %d", n.AsSubject(),
			peerLookups,
			len(served), limit)
		return
	}
	cfg := &pd.InfoOf(n).Cfg // Pages pinned until copied. The copies are of the arena, which is bounded above.
	if or.countJudged(checkLookupShare); pinned > int(cfg.Share(cfg.LoanSharePct)) {
		or.fail(checkLookupShare, "node %d copies %d pages for peers, in a pool of %d pages, of which peers may use %d%%", n.AsSubject(),
			pinned, n.EnginePages(), cfg.LoanSharePct)
	}
}

// countTaken returns how many pages of the arena a peer has, and how many all peers have: pages that are stored into,
// or that may be read.
func (or *arenaOracle) countTaken(n *world.Node, peer effects.Incarnation) (ofPeer, total int) {
	count := func(pg *world.Page) {
		if total++; pg.GrantedTo == peer {
			ofPeer++
		}
	}
	for i := n.EnginePages(); i < n.EnginePages()+n.ArenaPages; i++ {
		if pg := &n.Pool.Pages[i]; pg.Writers > 0 {
			count(pg)
		}
	}
	for _, g := range n.Pool.ReadLeases {
		for _, p := range g.Pages {
			if n.InArena(p.Index) && or.w.IsLeaseLive(n, g) {
				count(&n.Pool.Pages[p.Index])
			}
		}
	}
	return ofPeer, total
}

// verifyMove checks half a page when a device copies the half page: both pages must still belong to the copy.
func (or *arenaOracle) verifyMove(c *world.Copy, p effects.CopyPair) {
	or.countJudged(checkArenaMove)
	n := c.Node
	src, dst := &c.Pool.Pages[p.From.Index], &c.Pool.Pages[p.To.Index]
	id, _ := or.oracles().readLeases.findLease(n, []effects.Page{p.To})
	switch {
	case !c.InUse:
		or.fail(checkArenaMove, "a copy accesses page %d of node %d after the copy has settled", n.PageSubject(p.From.Index), n.AsSubject())
	case src.LastGeneration != p.From.Generation || src.Readers == 0:
		or.fail(checkArenaMove, "a copy reads page %d of node %d, which has another user now", n.PageSubject(p.From.Index), n.AsSubject())
	case dst.LastGeneration != p.To.Generation || id != 0:
		or.fail(checkArenaMove, "a copy stores into page %d of node %d, which may be read under grant %d or has another user",
			n.PageSubject(p.To.Index), n.AsSubject(), n.GrantSubject(id))
	}
}

// endCopy ends a copy when its machine is notified that the copy is settled.
func (or *arenaOracle) endCopy(c *world.Copy) {
	c.InUse = false
	for _, p := range c.Pairs {
		c.Pool.Pages[p.From.Index].Readers--
		c.Pool.UpdateInUse(p.From.Index)
		c.Pool.Pages[p.To.Index].Writers--
		c.Pool.UpdateInUse(p.To.Index)
	}
}

// verifyLease checks a page that a node with an arena leases: the page must be in the arena and hold a whole chunk.
func (or *arenaOracle) verifyLease(n *world.Node, g *world.Grant, p effects.Page) {
	or.countJudged(checkArenaLeased, checkArenaWhole)
	switch pg := &n.Pool.Pages[p.Index]; {
	case !n.InArena(p.Index):
		or.fail(checkArenaLeased, "node %d leases page %d under grant %d, and the page is not in the arena", n.AsSubject(),
			n.PageSubject(p.Index), n.GrantSubject(g.ID))
	case !or.isWhole(n.Pool, pg, p.Length):
		or.fail(checkArenaWhole, "node %d leases page %d under grant %d, and the page does not hold a whole chunk", n.AsSubject(),
			n.PageSubject(p.Index), n.GrantSubject(g.ID))
	}
}

// verifyEviction checks that no copy of an evicted chunk is in flight.
func (or *arenaOracle) verifyEviction(n *world.Node, k uint32) {
	or.countJudged(checkArenaEvicted)
	for _, c := range or.w.Copies {
		if c.Pool != n.Pool || !c.InUse {
			continue
		}
		for _, p := range c.Pairs {
			if src := &n.Pool.Pages[p.From.Index]; src.LastGeneration == p.From.Generation && src.Stamps[0].Key() == k {
				or.fail(checkArenaEvicted, "node %d evicts chunk %d while the chunk is being copied from page %d", n.AsSubject(), oracle.Key(k),
					n.PageSubject(p.From.Index))
				return
			}
		}
	}
}

// afterStep compares the machine's page counts of the arena with what drivers saw. Pages are pinned for peers only
// while they are copied or written.
func (or *arenaOracle) afterStep(n *world.Node, s *rank.Stats) {
	or.removeSuperseded(n)
	or.countJudged(checkArenaFree)
	if _, taken := or.countTaken(n, effects.Incarnation{}); s.ArenaTotal != n.ArenaPages || s.ArenaFree+taken > s.ArenaTotal {
		or.fail(checkArenaFree, "node %d counts %d of %d arena pages free while %d are in use", n.AsSubject(), s.ArenaFree,
			s.ArenaTotal, taken)
		return
	}
	for _, c := range or.w.Copies {
		if c.Pool == n.Pool && c.InUse {
			return
		}
	}
	if len(or.oracles().lookups.stateOf(n).receivedPushes) > 0 {
		return
	}
	if or.countJudged(checkArenaPins); s.Pinned > 0 {
		or.fail(checkArenaPins, "node %d pins %d pages for peers, and neither copies nor writes a page", n.AsSubject(), s.Pinned)
	}
}
