package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// In a node that both prefills and decodes, the engine and the peers use pages of the same pool and wait for pages in
// the same queue (rule M9): the engine's oldest Reserve competes with the first request of each peer. queueOracle
// judges the order between peers, and the oracle of this file judges the order between peers and the engine.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkEngineShare       = oracle.NewCheck("S18", "shares of engines")
	checkReserveOvertaken  = oracle.NewCheck("L7", "reserves overtaken by peers")
	checkOvertakenByEngine = oracle.NewCheck("L7", "requests overtaken by engines")
	checkReserveWaits      = oracle.NewCheck("L7", "reserves that wait for free pages")
)

// dualRoleOracle judges how an engine and the peers of the same node share a pool.
type dualRoleOracle struct {
	oracleBase
	perIncarnation[dualRoleState]
}

func (*dualRoleOracle) subscribe(l *oracle.Subscriptions[dualRoleOracle]) {
	oracle.On(l, func(o *dualRoleOracle, _ *oracle.Call, e pd.CommandReceived) {
		if e.Command.Kind == plan.CommandReserve {
			o.recordReserve(e.Node, e.Ticket)
		}
	})
	oracle.On(l, func(o *dualRoleOracle, _ *oracle.Call, e pd.CommandOutcome) {
		o.recordReleased(e.Node, e.Effect, e.Command)
	})
	oracle.On(l, func(o *dualRoleOracle, _ *oracle.Call, e pd.ReserveOutcome) { o.verifyShare(e.Node, e.Effect) })
}

// dualRoleState records the pages and the pending Reserves of the engine for an incarnation of a node.
type dualRoleState struct {
	pending       []effects.Ticket // Reserves that the machine got; may include a few that are over
	reservedPages int              // pages that the engine has reserved
	oldest        effects.Ticket   // the oldest pending Reserve when a peer last overtook a Reserve
	overtakes     int              // grants and reads that overtook the oldest Reserve
	rivals        int              // the largest number of origins that had a waiting request in that time
}

func (s *dualRoleState) clearForReuse() { *s = dualRoleState{pending: s.pending[:0]} }

// isDualRole reports whether n prefills and decodes.
func isDualRole(n *world.Node) bool { return n.IsSender() && n.IsReceiver() }

// recordReserve records a Reserve when its machine receives the command.
func (or *dualRoleOracle) recordReserve(n *world.Node, t effects.Ticket) {
	if n.IsSender() {
		or.stateOf(n).pending = append(or.stateOf(n).pending, t)
	}
}

// recordReleased records the end of a command, with which the engine may have given pages back.
func (or *dualRoleOracle) recordReleased(n *world.Node, e *effects.Deliver, c *pd.Command) {
	if !isDualRole(n) || e.Code != effects.OK {
		return
	}
	switch c.Body.(type) {
	case *ops.Release: // A Release may also be a conflicting command of the engine, which arrives after the put.
		reserve := &or.w.Commands[c.Target-1]
		or.stateOf(n).reservedPages -= len(reserve.Pages) - reserve.StoredPages
	case *ops.Store:
		or.stateOf(n).reservedPages -= len(c.Pages)
	}
}

// verifyShare counts the pages that the engine gets against the engine's share, and counts the Reserve as an overtake
// of each peer that has a waiting request.
func (or *dualRoleOracle) verifyShare(n *world.Node, e *effects.Deliver) {
	if !isDualRole(n) {
		return
	}
	state := or.stateOf(n)
	state.reservedPages += len(e.Pages)
	if or.countJudged(checkEngineShare); state.reservedPages > engineShare(n) {
		or.fail(checkEngineShare, "node %d reserves %d pages for ticket %d, and its engine has %d in all of the %d that it may "+
			"have",
			n.AsSubject(), len(e.Pages), oracle.Ticket(e.Ticket), state.reservedPages, engineShare(n))
		return
	}
	queue := &or.oracles().queue
	queue.countPass(n, nil)
	queue.blurTurns(n, nil)
	for i := range queue.stateOf(n).pending {
		o := &queue.stateOf(n).pending[i]
		if o.isNew || !queue.isHead(n, i) || or.w.Failure != nil {
			continue
		}
		if counts, tooOften := queue.countOvertake(n, o, nil); !counts {
			or.countVoid(checkOvertakenByEngine)
		} else if or.countJudged(checkOvertakenByEngine); tooOften {
			or.fail(checkOvertakenByEngine, "node %d lets request %d wait although %d grants and reserves overtook it; %d are "+
				"allowed",
				n.AsSubject(), oracle.Message(o.request), o.overtaken.byOthers, pd.InfoOf(n).Cfg.BypassMax)
		}
	}
}

// engineShare returns how many pages the engine of a node may have.
func engineShare(n *world.Node) int {
	cfg := &pd.InfoOf(n).Cfg
	return min(int(cfg.Pages), max(1, int(cfg.Pages)*int(cmp.Or(cfg.EngineSharePct, 50))/100))
}

// oldestReserve returns the Reserve that has waited longest, and 0 if none waits.
func (or *dualRoleOracle) oldestReserve(n *world.Node) effects.Ticket {
	state := or.stateOf(n)
	state.pending = slices.DeleteFunc(state.pending, func(t effects.Ticket) bool { return or.w.Commands[t-1].Finished })
	if len(state.pending) == 0 {
		return 0
	}
	return state.pending[0]
}

// countOvertake counts an overtake of the oldest pending Reserve, because a peer was served first. A Reserve that waits
// because of the engine's share was not overtaken.
func (or *dualRoleOracle) countOvertake(n *world.Node) {
	t := or.oldestReserve(n)
	if t == 0 {
		return
	}
	state := or.stateOf(n)
	if state.oldest != t {
		state.oldest, state.overtakes, state.rivals = t, 0, 0
	}
	s := pd.StatsOf(n)
	if hasTenantShares(n) || state.reservedPages+int(or.w.Commands[t-1].Count) > engineShare(n) ||
		or.w.Flows.AnyHoldsEnginePages(&s) || or.hasPeerWrites(n) {
		or.countVoid(checkReserveOvertaken)
		return
	}
	or.countJudged(checkReserveOvertaken)
	rivals := or.oracles().queue.countRivals(n, nil).byOthers
	state.rivals = max(state.rivals, rivals+1) // The peer that is served counts as well.
	if state.overtakes++; state.overtakes == int(pd.InfoOf(n).Cfg.BypassMax) && rivals > 1 {
		pd.CountConjunction(&or.w.Result, pd.EngineAtBypassLimit)
	}
	if state.overtakes > int(pd.InfoOf(n).Cfg.BypassMax)+state.rivals {
		or.fail(checkReserveOvertaken, "node %d lets ticket %d of its engine wait for pages although peers were served %d times "+
			"before it; %d are allowed", n.AsSubject(), oracle.Ticket(t), state.overtakes, pd.InfoOf(n).Cfg.BypassMax)
	}
}

// findServableReserve returns the oldest pending Reserve after a step, and whether the pages for that Reserve are free.
func (or *dualRoleOracle) findServableReserve(n *world.Node, s *rank.Stats) (t effects.Ticket, servable bool) {
	if !n.IsSender() {
		return 0, false
	}
	if t = or.oldestReserve(n); t == 0 {
		return 0, false
	}
	count, room := int(or.w.Commands[t-1].Count), s.PagesFree
	if or.oracles().tenantShares.mayExceed(n, s, tenantOfReserve(&or.w.Commands[t-1]), count) {
		or.countVoid(checkReserveWaits)
		return t, false
	}
	if n.IsCache {
		room += s.PagesEvictable
	}
	if isDualRole(n) && (or.stateOf(n).reservedPages+count > engineShare(n) || or.w.Flows.AnyHoldsEnginePages(s) || or.hasPeerWrites(n)) {
		or.countVoid(checkReserveWaits)
		return t, false
	}
	or.countJudged(checkReserveWaits)
	return t, count <= room
}

// hasPeerWrites reports whether pages of the engine's share are in use for chunks that peers write to this node. The
// pages are in use until there is proof that the peers no longer write.
func (or *dualRoleOracle) hasPeerWrites(n *world.Node) bool {
	for _, g := range n.Grants {
		if g.IsRequestedByOwner() && isWritable(n.Pool, g) {
			return true
		}
	}
	return false
}

// failNeedlessWait fails the run, because a Reserve waits although the pages for that Reserve are free.
func (or *dualRoleOracle) failNeedlessWait(n *world.Node, s *rank.Stats, t effects.Ticket) {
	or.fail(checkReserveWaits, "node %d has %d pages free and lets ticket %d of its engine wait for %d",
		n.AsSubject(), s.PagesFree, oracle.Ticket(t), or.w.Commands[t-1].Count)
}
