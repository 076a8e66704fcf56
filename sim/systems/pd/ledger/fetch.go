package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The promises about fetches: a successful fetch has handed over all chunks, a failed fetch has a cause that concerns
// this fetch, and no fetch waits without need.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkFetchForm   = oracle.NewCheck("L1", "forms of fetches' outcomes")
	checkFetchWhole  = oracle.NewCheck("S1", "fetches that succeed")
	checkFetchMissed = oracle.NewCheck("S9", "fetches that miss chunks")
	checkFetchCause  = oracle.NewCheck("S18", "causes of fetches that fail")
	checkFetchTables = oracle.NewCheck("S17", "tables of fetches")
	checkStaging     = oracle.NewCheck("S15", "staging pages")
	checkFetchBegins = oracle.NewCheck("L8", "fetches that wait")
)

// fetchOracle judges the outcomes and the waiting of fetches.
type fetchOracle struct {
	oracleBase
	perIncarnation[fetchState]
}

func (*fetchOracle) subscribe(l *oracle.Subscriptions[fetchOracle]) {
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e world.SteppingMachine) { o.recordDueFetches(e.Node) })
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e world.ImportingPeer) { o.recordImport(e.Node, e.Effect) })
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e world.ImportEnded) { o.recordImportEnd(e.Node, e.Corr, e.Code) })
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e world.TransferDone) {
		o.removeRead(e.Node, e.Transfer)
		o.recordReadFailure(e.Node, e.Transfer, e.Code)
	})
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e world.StartingTransfer) { o.recordRead(e.Node, e.Transfer) })
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e world.CancellingTransfer) { o.removeRead(e.Node, e.Transfer) })
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e world.ScatterEnded) { o.allowScatterCode(e.Ticket, e.Code) })
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e pd.CommandReceived) {
		switch e.Command.Kind {
		case plan.CommandFetch:
			o.recordFetch(e.Node, e.Ticket)
		case plan.CommandAbort:
			o.allowCancelled(e.Command.Target)
		}
	})
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e pd.FetchOutcome) { o.verifyOutcome(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e stepCounted) {
		if e.node.KeepsOffers {
			o.verifyTables(e.node, e.stats)
			o.verifyStopped(e.node)
		}
	})
}

// fetchState records the fetches of an incarnation of a node.
type fetchState struct {
	fetches []effects.Ticket // given to the machine; may include a few that are over
	imports []pendingImport  // in progress

	reads  []*world.Transfer // in flight, and not cancelled
	failed effects.Ticket    `snap:"scratch"` // the fetch that failed in this step
}

func (s *fetchState) clearForReuse() {
	*s = fetchState{fetches: s.fetches[:0], imports: s.imports[:0], reads: s.reads[:0]}
}

// recordFetch records a fetch when the command reaches the machine.
func (or *fetchOracle) recordFetch(n *world.Node, t effects.Ticket) {
	c := &or.w.Commands[t-1]
	body, ok := c.Body.(*engine.Fetch)
	c.Fetch.ReceivedAt = or.w.Now
	c.Fetch.RequestAbandoned = ok && len(body.Request) > 0 && or.oracles().prompt.isAbandoning(n, c.Job)
	if c.Fetch.RequestAbandoned {
		c.Fetch.AllowedCodes |= 1 << effects.Cancelled
	}
	or.stateOf(n).fetches = append(or.openFetches(n), t)
}

// allowCancelled records that a fetch is to be cancelled, so that it may end as cancelled.
func (or *fetchOracle) allowCancelled(t effects.Ticket) {
	or.w.Commands[t-1].Fetch.AllowedCodes |= 1 << effects.Cancelled
}

// allowScatterCode records how the device code of a fetch ended, so that the fetch may end with that code.
func (or *fetchOracle) allowScatterCode(t effects.Ticket, code effects.Code) {
	or.w.Commands[t-1].Fetch.AllowedCodes |= 1 << code
}

// recordDueFetches records, before a step, for each fetch that expires in the step, whether all chunks of the fetch are
// available. The step ends these fetches before the step serves waiting requests for pages, and the chunks of these
// requests may become readable at once. Therefore the state after the step does not show what was available when a
// fetch ended.
func (or *fetchOracle) recordDueFetches(n *world.Node) {
	if !n.KeepsOffers {
		return
	}
	for _, t := range or.openFetches(n) {
		if c := &or.w.Commands[t-1]; !or.mayWait(n, c) {
			c.Fetch.HadAllChunks = or.firstUnavailable(n, c) < 0
		}
	}
}

// openFetches returns the fetches that the machine was given and has not delivered.
func (or *fetchOracle) openFetches(n *world.Node) []effects.Ticket {
	state := or.stateOf(n)
	state.fetches = slices.DeleteFunc(state.fetches, func(t effects.Ticket) bool { return or.w.Commands[t-1].Finished })
	return state.fetches
}

// chunksOf returns the chunks of a fetch.
func (or *fetchOracle) chunksOf(c *pd.Command) []uint32 {
	return or.w.Jobs[c.Job].KeyNumbers[c.From : c.From+int(c.Count)]
}

// haveCommon reports whether the two lists have a chunk in common.
func haveCommon(a, b []uint32) bool {
	return slices.ContainsFunc(a, func(id uint32) bool { return slices.Contains(b, id) })
}

// verifyOutcome checks the outcome of a fetch.
func (or *fetchOracle) verifyOutcome(n *world.Node, e *effects.Deliver, c *pd.Command) {
	or.countJudged(checkFetchForm)
	switch {
	case len(e.Pages) > 0 || e.Code != effects.OK && e.Hits > 0:
		or.fail(checkFetchForm, "node %d delivers ticket %d (fetch) as %s with %d hits and %d pages",
			n.AsSubject(), oracle.Ticket(e.Ticket), e.Code, e.Hits, len(e.Pages))
	case e.Code != effects.OK:
		or.verifyFailure(n, e, c)
	default:
		or.countJudged(checkFetchWhole)
		if c.Device.Received != c.Count || e.Hits != c.Count || e.Held {
			or.fail(checkFetchWhole,
				"node %d ends ticket %d (fetch) as ok with %d hits although the engine received %d of %d chunks",
				n.AsSubject(), oracle.Ticket(e.Ticket), e.Hits, c.Device.Received, c.Count)
		}
	}
	if c.Fetch.RequestAbandoned && (e.Begun || e.Code == effects.OK) {
		or.fail(checkFetchCause, "node %d begins ticket %d (fetch) although the node was abandoning the request",
			n.AsSubject(), oracle.Ticket(e.Ticket))
	}
	or.countCoincidences(n, e, c)
	or.recordFailed(n, e, c)
	if e.Code == effects.OK || e.Begun { // A fetch that has not begun consumes no offers.
		or.oracles().deferredOffers.recordConsumed(n, c)
	}
}

// verifyFailure checks that there is a cause for the failure of a fetch, which concerns this fetch.
func (or *fetchOracle) verifyFailure(n *world.Node, e *effects.Deliver, c *pd.Command) {
	bySender := e.Code == effects.SenderFailed || e.Code == effects.NotSent
	if e.Code == effects.NotFound || e.Code == effects.Lapsed || bySender {
		if c.Fetch.AllowedCodes>>e.Code&1 == 1 {
			or.countVoid(checkFetchMissed)
		} else if or.countJudged(checkFetchMissed); (c.Fetch.HadAllChunks || or.mayWait(n, c)) && or.firstUnavailable(n, c) < 0 {
			or.fail(checkFetchMissed,
				"node %d ends ticket %d (fetch) for lack of chunks although all chunks are ready or still promised",
				n.AsSubject(), oracle.Ticket(e.Ticket))
			return
		}
	}
	// requestEndOracle judges whether the sender reported that.
	forbidden := e.Code == effects.Forbidden && pd.LacksOwnTenant(n, c.Body)
	if or.countJudged(checkFetchCause); !or.isAllowedCode(n, c, e.Code) && !bySender && !forbidden {
		or.fail(checkFetchCause,
			"node %d ends ticket %d (fetch) as %s without a cause that affects the fetch",
			n.AsSubject(), oracle.Ticket(e.Ticket), e.Code)
	}
}

// firstUnavailable returns the index of the first chunk of a fetch that may be unavailable, and -1 if every chunk must
// be available.
func (or *fetchOracle) firstUnavailable(n *world.Node, c *pd.Command) int {
	for i, id := range or.chunksOf(c) {
		if _, ready := pd.ReadyAt(n, or.w.Keys[id]); !ready && !or.oracles().deferredOffers.isPromised(n, id) {
			return i
		}
	}
	return -1
}

// isAllowedCode reports whether a fetch may have failed with the code.
func (or *fetchOracle) isAllowedCode(n *world.Node, c *pd.Command, code effects.Code) bool {
	switch {
	case c.Fetch.AllowedCodes>>code&1 == 1:
		return true
	case code == effects.TooMany:
		return pd.InfoOf(n).Cfg.FetchesMax < largeFetchTable || len(or.stateOf(n).fetches) >= largeFetchTable/2
	case code == effects.Draining:
		return n.Draining
	case code == effects.Expired && or.oracles().deferredOffers.mayBeExpired(n, or.chunksOf(c)):
		return true
	case code == effects.Lapsed:
		lapsed := or.oracles().lapses.stateOf(n)
		requestEnded := or.oracles().requestEnds.hasEnded(n, c.Job)
		// Then the fetch ends at once, because a chunk that has lapsed is not sent again.
		return (requestEnded || !or.mayWait(n, c)) &&
			slices.ContainsFunc(or.chunksOf(c), func(k uint32) bool { return lapsed.reportedAt[k] > 0 })
	case code == effects.Expired, code == effects.NotFound, code == effects.Unreachable:
		return !or.mayWait(n, c)
	}
	return false
}

// mayWait reports whether a fetch may wait longer.
func (or *fetchOracle) mayWait(n *world.Node, c *pd.Command) bool {
	return n.ReadingAt(or.w.Now).Sub(n.ReadingAt(c.Fetch.ReceivedAt)) < c.Timeout
}

// largeFetchTable is the size from which a table of fetches cannot be full before half as many fetches are open.
// Fetches that were delivered and still read occupy rows of the table, too.
const largeFetchTable = 64

// allowCode records that the fetches which want any of the chunks may fail with the code from now on.
func (or *fetchOracle) allowCode(n *world.Node, code effects.Code, ids ...uint32) {
	for _, t := range or.stateOf(n).fetches {
		c := &or.w.Commands[t-1]
		if c.Fetch.AllowedCodes>>code&1 == 0 && haveCommon(or.chunksOf(c), ids) {
			c.Fetch.AllowedCodes |= 1 << code
		}
	}
}

// recordReadFailure records how a read of some chunks ended: every fetch that wants any of these chunks may fail with
// that code.
func (or *fetchOracle) recordReadFailure(n *world.Node, t *world.Transfer, code effects.Code) {
	if !n.KeepsOffers || !t.Read || t.Lease == nil || code == effects.OK {
		return
	}
	if code == effects.PeerLost || code == effects.Stale {
		or.oracles().deferredOffers.recordUnreachable(n, t.Link.Peer, effects.PeerLost) // The link is given up.
	}
	for _, p := range t.Pairs {
		if at := t.Lease.PageIndex(p.Remote.Index); at >= 0 {
			or.allowCode(n, code, t.Lease.Lease.FirstStamps[at].Key())
		}
	}
}

// verifyTables checks, after a step of a receiver that keeps offers, the receiver's tables and staging pages.
func (or *fetchOracle) verifyTables(n *world.Node, s *rank.Stats) {
	or.openFetches(n)
	c := &pd.InfoOf(n).Cfg
	or.countJudged(checkFetchTables, checkStaging)
	if s.Offers > int(c.OffersMax) || s.Locations > int(c.LocationsMax) || s.Fetches > int(c.FetchesMax) {
		or.fail(checkFetchTables, "node %d has %d offers, %d remote locations and %d fetches, which exceeds a limit",
			n.AsSubject(), s.Offers, s.Locations, s.Fetches)
		return
	}
	staging := 0
	for i := range n.Pool.Pages {
		if pg := &n.Pool.Pages[i]; pg.FillState != world.FillNone && (pg.Writers > 0 || pg.Scatters > 0) {
			staging++
		}
	}
	if staging > s.Staged || s.Staged > int(c.StagingPages) {
		or.fail(checkStaging, "node %d uses %d pages for staging and counts %d, %d are allowed",
			n.AsSubject(), staging, s.Staged, c.StagingPages)
		return
	}
	or.oracles().deferredOffers.verifyLocations(n, s)
	or.verifyBegun(n, s)
}

// stagingRoom returns the number of free pages into which fetches can read.
func stagingRoom(n *world.Node, s *rank.Stats) int {
	if n.SecondPages > 0 {
		return s.DeviceFree
	}
	return s.PagesFree
}

// verifyBegun checks that no fetch waits, while no staging page is in use, if all chunks of the fetch are ready or
// promised.
func (or *fetchOracle) verifyBegun(n *world.Node, s *rank.Stats) {
	if s.Staged > 0 || stagingRoom(n, s) == 0 || n.Draining || n.Busy {
		return
	}
	for _, t := range or.openFetches(n) {
		c := &or.w.Commands[t-1]
		or.countJudged(checkFetchBegins)
		if c.DueAt != 0 && c.Device.Corr == 0 && or.firstUnavailable(n, c) < 0 && or.oracles().deferredOffers.canReachSenders(n, or.chunksOf(c)) {
			or.fail(checkFetchBegins, "node %d lets ticket %d (fetch) wait although all of its chunks are ready or can be read",
				n.AsSubject(), oracle.Ticket(t))
			return
		}
	}
}

// recordImport records an import of a peer's plane.
func (or *fetchOracle) recordImport(n *world.Node, e *effects.Import) {
	if n.KeepsOffers {
		or.stateOf(n).imports = append(or.stateOf(n).imports, pendingImport{e.Corr, e.Peer})
	}
}

// recordImportEnd records the end of an import. If the import failed, the node cannot read from the peer.
func (or *fetchOracle) recordImportEnd(n *world.Node, corr effects.Corr, code effects.Code) {
	state := or.stateOf(n)
	kept := or.oracles().deferredOffers.stateOf(n)
	i := slices.IndexFunc(state.imports, func(x pendingImport) bool { return x.corr == corr })
	if i < 0 {
		return
	}
	peer := state.imports[i].peer
	if code != effects.OK {
		or.oracles().deferredOffers.recordUnreachable(n, peer, code)
	}
	for m := range kept.offers {
		if k := &kept.offers[m]; code == effects.Stale && k.peer == peer {
			k.ended = true // The incarnation is gone, together with its offers.
		}
	}
	state.imports = slices.Delete(state.imports, i, i+1)
}

// pendingImport is an Import that has not completed.
type pendingImport struct {
	corr effects.Corr `snap:"skip"`
	peer effects.Incarnation
}

// countCoincidences counts the notable coincidences in which a fetch ends, for the coverage of the run.
func (or *fetchOracle) countCoincidences(n *world.Node, e *effects.Deliver, c *pd.Command) {
	if e.Code == effects.OK {
		return
	}
	running := func(c *pd.Command) bool { return c.Device.Corr != 0 || c.Device.Received > 0 }
	if e.Code == effects.NotFound && !c.Fetch.HadAllChunks && !or.mayWait(n, c) && or.firstUnavailable(n, c) < 0 {
		pd.CountConjunction(&or.w.Result, pd.FetchExpiresOnArrival)
	}
	if e.Code == effects.NotFound || e.Code == effects.TooMany || e.Code == effects.Draining {
		return // The fetch did not begin.
	}
	ids := or.chunksOf(c)
	for _, t := range or.stateOf(n).fetches {
		o := &or.w.Commands[t-1]
		if t != e.Ticket && !o.Finished && running(o) && haveCommon(or.chunksOf(o), ids) {
			pd.CountConjunction(&or.w.Result, pd.FetchFailsWhileShared)
			return
		}
	}
}
