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
	checkFetchWhole  = oracle.NewCheck("S1", "fetches that end well")
	checkFetchMissed = oracle.NewCheck("S9", "fetches that miss chunks")
	checkFetchCause  = oracle.NewCheck("S18", "causes of fetches that fail")
	checkFetchTables = oracle.NewCheck("S17", "tables of fetches")
	checkStaging     = oracle.NewCheck("S15", "staging pages")
	checkFetchBegins = oracle.NewCheck("L8", "fetches that wait")
)

// fetchOracle judges the outcomes and the waiting of fetches.
type fetchOracle struct {
	judge
	perLife[fetchLife]
}

func (*fetchOracle) listen(l *oracle.Listen[fetchOracle]) {
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e world.Stepping) { o.fetchesDue(e.Node) })
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e world.Importing) { o.importing(e.Node, e.Effect) })
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e world.Imported) { o.importEnded(e.Node, e.Corr, e.Code) })
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e world.TransferDone) {
		o.readFailed(e.Node, e.Transfer, e.Code)
	})
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e world.Scattered) { o.scattered(e.Ticket, e.Code) })
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e pd.Commanded) {
		switch e.Command.Want {
		case plan.WantFetch:
			o.fetchGiven(e.Node, e.Ticket)
		case plan.WantAbort:
			o.aborted(e.Command.Target)
		}
	})
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e pd.Fetched) { o.fetchEnded(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *fetchOracle, _ *oracle.Call, e counted) {
		if e.node.Delays {
			o.fetches(e.node, e.stats)
		}
	})
}

// fetchLife records the fetches of an incarnation of a node.
type fetchLife struct {
	fetches []effects.Ticket // given to the machine; may include a few that are over
	imports []importSeen     // in progress
}

func (s *fetchLife) startReply() {
	*s = fetchLife{fetches: s.fetches[:0], imports: s.imports[:0]}
}

// fetchGiven records a fetch when the command reaches the machine.
func (or *fetchOracle) fetchGiven(n *world.Node, t effects.Ticket) {
	c := &or.w.Commands[t-1]
	body, ok := c.Body.(*engine.Fetch)
	c.Asked.At = or.w.Now
	c.Asked.Vain = ok && len(body.Request) > 0 && or.all().prompt.abandons(n, c.Job)
	if c.Asked.Vain {
		c.Asked.Excuse |= 1 << effects.Cancelled
	}
	or.at(n).fetches = append(or.openFetches(n), t)
}

// aborted records that a fetch is to be cancelled, so that it may end as cancelled.
func (or *fetchOracle) aborted(t effects.Ticket) {
	or.w.Commands[t-1].Asked.Excuse |= 1 << effects.Cancelled
}

// scattered records how the device code of a fetch ended, so that the fetch may end with that code.
func (or *fetchOracle) scattered(t effects.Ticket, code effects.Code) {
	or.w.Commands[t-1].Asked.Excuse |= 1 << code
}

// fetchesDue records, before a step, for each fetch that expires in the step, whether all chunks of the fetch are
// available. The step ends these fetches before the step serves waiting requests for pages, and the chunks of these
// requests may become readable at once. Therefore the state after the step does not show what was available when a
// fetch ended.
func (or *fetchOracle) fetchesDue(n *world.Node) {
	if !n.Delays {
		return
	}
	for _, t := range or.openFetches(n) {
		if c := &or.w.Commands[t-1]; !or.patient(n, c) {
			c.Asked.Had = or.missed(n, c) < 0
		}
	}
}

// openFetches returns the fetches that the machine was given and has not delivered.
func (or *fetchOracle) openFetches(n *world.Node) []effects.Ticket {
	my := or.at(n)
	my.fetches = slices.DeleteFunc(my.fetches, func(t effects.Ticket) bool { return or.w.Commands[t-1].Over })
	return my.fetches
}

// wanted returns the chunks of a fetch.
func (or *fetchOracle) wanted(c *pd.Command) []uint32 {
	return or.w.Jobs[c.Job].Ids[c.From : c.From+int(c.Count)]
}

// oneOf reports whether the two lists have a chunk in common.
func oneOf(some, others []uint32) bool {
	return slices.ContainsFunc(some, func(id uint32) bool { return slices.Contains(others, id) })
}

// fetchEnded checks the outcome of a fetch.
func (or *fetchOracle) fetchEnded(n *world.Node, e *effects.Deliver, c *pd.Command) {
	or.judged(checkFetchForm)
	switch {
	case len(e.Pages) > 0 || e.Code != effects.OK && e.Hits > 0:
		or.fail(checkFetchForm, "node %d delivers ticket %d (fetch) as %s with %d hits and %d pages",
			n.It(), oracle.Ticket(e.Ticket), e.Code, e.Hits, len(e.Pages))
	case e.Code != effects.OK:
		or.fetchFailed(n, e, c)
	default:
		or.judged(checkFetchWhole)
		if c.Device.Got != c.Count || e.Hits != c.Count || e.Held {
			or.fail(checkFetchWhole,
				"node %d ends ticket %d (fetch) well with %d hits although its engine was handed %d of %d chunks",
				n.It(), oracle.Ticket(e.Ticket), e.Hits, c.Device.Got, c.Count)
		}
	}
	if c.Asked.Vain && (e.Begun || e.Code == effects.OK) {
		or.fail(checkFetchCause, "node %d begins ticket %d (fetch) although it was abandoning its request",
			n.It(), oracle.Ticket(e.Ticket))
	}
	or.fetchMeets(n, e, c)
	if e.Code == effects.OK || e.Begun { // A fetch that has not begun consumes no offers.
		or.all().kept.left(n, c)
	}
}

// fetchFailed checks that there is a cause for the failure of a fetch, which concerns this fetch.
func (or *fetchOracle) fetchFailed(n *world.Node, e *effects.Deliver, c *pd.Command) {
	told := e.Code == effects.SenderFailed || e.Code == effects.NotSent
	if e.Code == effects.NotFound || e.Code == effects.Lapsed || told {
		if c.Asked.Excuse>>e.Code&1 == 1 {
			or.void(checkFetchMissed)
		} else if or.judged(checkFetchMissed); (c.Asked.Had || or.patient(n, c)) && or.missed(n, c) < 0 {
			or.fail(checkFetchMissed,
				"node %d misses chunks of ticket %d (fetch) although all are ready, or were promised for longer",
				n.It(), oracle.Ticket(e.Ticket))
			return
		}
	}
	// endsOracle judges whether the sender reported that.
	if or.judged(checkFetchCause); !or.excused(n, c, e.Code) && !told {
		or.fail(checkFetchCause,
			"node %d ends ticket %d (fetch) as %s, and nothing happened to what it reads that explains it",
			n.It(), oracle.Ticket(e.Ticket), e.Code)
	}
}

// missed returns the index of the first chunk of a fetch that may be unavailable, and -1 if every chunk must be
// available.
func (or *fetchOracle) missed(n *world.Node, c *pd.Command) int {
	for i, id := range or.wanted(c) {
		if _, ready := pd.ReadyAt(n, or.w.Keys[id]); !ready && !or.all().kept.promisedHere(n, id) {
			return i
		}
	}
	return -1
}

// excused reports whether a fetch may have failed with the code.
func (or *fetchOracle) excused(n *world.Node, c *pd.Command, code effects.Code) bool {
	switch {
	case c.Asked.Excuse>>code&1 == 1:
		return true
	case code == effects.TooMany:
		return pd.Its(n).Cfg.FetchesMax < fetchesMany || len(or.at(n).fetches) >= fetchesMany/2
	case code == effects.Draining:
		return n.Draining
	case code == effects.Expired && or.all().kept.aged(n, or.wanted(c)):
		return true
	case code == effects.Lapsed:
		lapsed := or.all().lapsed.at(n)
		ended := or.all().ends.ended(n, c.Job) // Then the fetch ends at once, because a chunk that has lapsed is not sent again.
		return (ended || !or.patient(n, c)) &&
			slices.ContainsFunc(or.wanted(c), func(k uint32) bool { return lapsed.told[k] > 0 })
	case code == effects.Expired, code == effects.NotFound, code == effects.Unreachable:
		return !or.patient(n, c)
	}
	return false
}

// patient reports whether a fetch may wait longer.
func (or *fetchOracle) patient(n *world.Node, c *pd.Command) bool {
	return n.Shows(or.w.Now).Sub(n.Shows(c.Asked.At)) < c.Patience
}

// fetchesMany is the size from which a table of fetches cannot be full before half as many fetches are open. Fetches
// that were delivered and still read occupy rows of the table, too.
const fetchesMany = 64

// excuse records that the fetches which want any of the chunks may fail with the code from now on.
func (or *fetchOracle) excuse(n *world.Node, code effects.Code, ids ...uint32) {
	for _, t := range or.at(n).fetches {
		c := &or.w.Commands[t-1]
		if c.Asked.Excuse>>code&1 == 0 && oneOf(or.wanted(c), ids) {
			c.Asked.Excuse |= 1 << code
		}
	}
}

// readFailed records how a read of some chunks ended: every fetch that wants any of these chunks may fail with that
// code.
func (or *fetchOracle) readFailed(n *world.Node, t *world.Transfer, code effects.Code) {
	if !n.Delays || !t.Read || t.Under == nil || code == effects.OK {
		return
	}
	if code == effects.PeerLost || code == effects.Stale {
		or.all().kept.outOfReach(n, t.Link.Peer, effects.PeerLost) // The link is given up.
	}
	for _, p := range t.Pairs {
		if at := t.Under.Place(p.Remote.Index); at >= 0 {
			or.excuse(n, code, t.Under.Loan.Held[at].Key())
		}
	}
}

// fetches checks, after a step of a receiver that keeps offers, the receiver's tables and staging pages.
func (or *fetchOracle) fetches(n *world.Node, s *rank.Stats) {
	or.openFetches(n)
	c := &pd.Its(n).Cfg
	or.judged(checkFetchTables, checkStaging)
	if s.Offers > int(c.OffersMax) || s.Locations > int(c.LocationsMax) || s.Fetches > int(c.FetchesMax) {
		or.fail(checkFetchTables, "node %d has %d offers, %d remote locations and %d fetches, more than it may",
			n.It(), s.Offers, s.Locations, s.Fetches)
		return
	}
	staging := 0
	for i := range n.Pool.Pages {
		if pg := &n.Pool.Pages[i]; pg.Fill != world.FillNone && (pg.Writers > 0 || pg.Scatters > 0) {
			staging++
		}
	}
	if staging > s.Staged || s.Staged > int(c.StagingPages) {
		or.fail(checkStaging, "node %d uses %d pages for staging and counts %d, %d are allowed",
			n.It(), staging, s.Staged, c.StagingPages)
		return
	}
	or.all().kept.placed(n, s)
	or.begun(n, s)
}

// roomToStage returns the number of free pages into which fetches can read.
func roomToStage(n *world.Node, s *rank.Stats) int {
	if n.Second > 0 {
		return s.DeviceFree
	}
	return s.PagesFree
}

// begun checks that no fetch waits, while no staging page is in use, if all chunks of the fetch are ready or promised.
func (or *fetchOracle) begun(n *world.Node, s *rank.Stats) {
	if s.Staged > 0 || roomToStage(n, s) == 0 || n.Draining || n.Busy {
		return
	}
	for _, t := range or.openFetches(n) {
		c := &or.w.Commands[t-1]
		or.judged(checkFetchBegins)
		if c.Due != 0 && c.Device.Corr == 0 && or.missed(n, c) < 0 && or.all().kept.reached(n, or.wanted(c)) {
			or.fail(checkFetchBegins, "node %d lets ticket %d (fetch) wait although all of its chunks are ready or can be read",
				n.It(), oracle.Ticket(t))
			return
		}
	}
}

// importing records an import of a peer's plane.
func (or *fetchOracle) importing(n *world.Node, e *effects.Import) {
	if n.Delays {
		or.at(n).imports = append(or.at(n).imports, importSeen{e.Corr, e.Peer})
	}
}

// importEnded records the end of an import. If the import failed, the node cannot read from the peer.
func (or *fetchOracle) importEnded(n *world.Node, corr effects.Corr, code effects.Code) {
	my := or.at(n)
	kept := or.all().kept.at(n)
	i := slices.IndexFunc(my.imports, func(x importSeen) bool { return x.corr == corr })
	if i < 0 {
		return
	}
	peer := my.imports[i].peer
	if code != effects.OK {
		or.all().kept.outOfReach(n, peer, code)
	}
	for m := range kept.kept {
		if k := &kept.kept[m]; code == effects.Stale && k.peer == peer {
			k.over = true // The incarnation is gone, together with its offers.
		}
	}
	my.imports = slices.Delete(my.imports, i, i+1)
}

// importSeen is an Import that has not completed.
type importSeen struct {
	corr effects.Corr `snap:"skip"`
	peer effects.Incarnation
}

// fetchMeets counts the notable coincidences in which a fetch ends, for the coverage of the run.
func (or *fetchOracle) fetchMeets(n *world.Node, e *effects.Deliver, c *pd.Command) {
	if e.Code == effects.OK {
		return
	}
	running := func(c *pd.Command) bool { return c.Device.Corr != 0 || c.Device.Got > 0 }
	if e.Code == effects.NotFound && !c.Asked.Had && !or.patient(n, c) && or.missed(n, c) < 0 {
		pd.Met(&or.w.Result, pd.FetchOverAsItComes)
	}
	if e.Code == effects.NotFound || e.Code == effects.TooMany || e.Code == effects.Draining {
		return // The fetch did not begin.
	}
	ids := or.wanted(c)
	for _, t := range or.at(n).fetches {
		o := &or.w.Commands[t-1]
		if t != e.Ticket && !o.Over && running(o) && oneOf(or.wanted(o), ids) {
			pd.Met(&or.w.Result, pd.FetchFailsBeside)
			return
		}
	}
}
