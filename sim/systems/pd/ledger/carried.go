package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of chunks that travel in the allocation request: the source pages and the target pages of the copies.

var (
	checkCarried           = oracle.NewCheck("S4", "source pages of carried chunks")
	checkCarriedTarget     = oracle.NewCheck("S4", "target pages of carried chunks")
	checkCarriedGeneration = oracle.NewCheck("S12", "generations of target pages of carried chunks")
	checkCarriedOnce       = oracle.NewCheck("S23", "operations with carried chunks, stored once")
)

// verifyCarried checks that the pages whose content travels in a message are reserved by an engine, and that no
// transfer stores into these pages.
func (or *writeGrantOracle) verifyCarried(n *world.Node, e *effects.Send) {
	or.countJudged(checkCarried)
	for _, p := range e.Carries {
		switch pg := &n.Pool.Pages[p.Index]; {
		case pg.Reserved == 0 && or.w.Script == nil:
			or.fail(checkCarried, "node %d sends page %d with a message, which no engine has reserved", n.AsSubject(),
				n.PageSubject(p.Index))
		case pg.Writers > 0:
			or.fail(checkCarried, "node %d sends page %d with a message while a transfer may store into it", n.AsSubject(),
				n.PageSubject(p.Index))
		}
	}
}

// verifyCarriedTarget checks that a page into which a chunk of a message is copied has no user.
func (or *writeGrantOracle) verifyCarriedTarget(n *world.Node, e *effects.Store) {
	or.countJudged(checkCarriedTarget, checkCarriedGeneration)
	pg := &n.Pool.Pages[e.Page.Index]
	if id, page := or.oracles().readLeases.findLease(n, []effects.Page{e.Page}); id != 0 {
		or.fail(checkCarriedTarget, "node %d copies a message to page %d while the page may be read under grant %d", n.AsSubject(),
			n.PageSubject(page),
			n.GrantSubject(id))
		return
	}
	switch {
	case pg.Writers > 0:
		or.fail(checkCarriedTarget, "node %d copies a message to page %d while a transfer may still store into it", n.AsSubject(),
			n.PageSubject(e.Page.Index))
	case pg.Granted != 0 && !or.oracles().plainSenders.isExpired(n, pg.Granted):
		or.fail(checkCarriedTarget, "node %d copies a message to page %d, which is granted under %d", n.AsSubject(),
			n.PageSubject(e.Page.Index), n.GrantSubject(pg.Granted))
	case pg.Pins > 0 || pg.Scatters > 0:
		or.fail(checkCarriedTarget, "node %d copies a message to page %d while the engine reads it", n.AsSubject(),
			n.PageSubject(e.Page.Index))
	case pg.Reserved != 0 && or.w.Script == nil:
		or.fail(checkCarriedTarget, "node %d copies a message to page %d while the engine has reserved the page with ticket %d", n.AsSubject(),
			n.PageSubject(e.Page.Index), oracle.Ticket(pg.Reserved))
	case pg.Generation != e.Page.Generation:
		or.fail(checkCarriedGeneration, "node %d copies a message to page %d in generation %d, and peers see %d", n.AsSubject(),
			n.PageSubject(e.Page.Index), e.Page.Generation, pg.Generation)
	case e.Page.Generation <= pg.LastGeneration:
		or.fail(checkCarriedTarget, "node %d copies a message to page %d with generation %d after %d", n.AsSubject(),
			n.PageSubject(e.Page.Index), e.Page.Generation, pg.LastGeneration)
	}
	state := or.oracles().queue.stateOf(n)
	state.storedPages = append(state.storedPages, e.Page)
	pg.Granted, pg.GrantGeneration, pg.LastGeneration, pg.TrustedGrant, pg.FillState = 0, e.Page.Generation, e.Page.Generation, 0,
		world.FillNone
	n.Pool.UpdateInUse(e.Page.Index)
}

// carriedOperation records an operation whose chunks were taken from the allocation request.
type carriedOperation struct {
	operationID
	takenAt effects.Time
}

// verifyCarriedOnce records that the chunks of an operation were taken from the request. It fails if the same operation
// of the peer was taken before. While the peer has a row, the machine keeps a record of the peer's last such operation,
// so that a retry gets the reply of the first attempt (S23).
func (or *queueOracle) verifyCarriedOnce(n *world.Node, w *pendingRequest) {
	if w.operation == 0 {
		return
	}
	state, now, cfg := or.stateOf(n), or.w.ReadClock(n), &pd.InfoOf(n).Cfg
	i := slices.IndexFunc(state.carried, func(x carriedOperation) bool { return x.peer == w.peer })
	if i < 0 {
		i = len(state.carried)
		state.carried = append(state.carried, carriedOperation{operationID{peer: w.peer}, now})
	}
	x := &state.carried[i]
	switch {
	case !or.oracles().peerRows.isKnown(n, w.peer):
		or.countVoid(checkCarriedOnce)
	case x.number == w.operation && now <= x.takenAt.Add(min(cfg.ClaimTTL, cmp.Or(cfg.Tuning.ProvenPeerBonus, 60*effects.Second))):
		or.fail(checkCarriedOnce, "node %d stores the chunks of request %d again, whose operation was stored %v before", n.AsSubject(),
			oracle.Message(w.request), now.Sub(x.takenAt))
	default:
		or.countJudged(checkCarriedOnce)
	}
	x.number, x.takenAt = w.operation, now
}
