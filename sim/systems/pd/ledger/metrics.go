package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/end"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/metrics"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A node exports numbers (package metrics). The oracle computes them as a node does, and counts by itself what drivers
// saw: which commands ended and how, which grants were made and revoked, which transfers ended and which pages they
// moved. After each step both must be equal. metrics_truth.go says what each number is compared with.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkFactCounts     = oracle.NewCheck("L12", "counts of facts")
	checkTransferCounts = oracle.NewCheck("L12", "counts and bytes of transfers")
	checkTransferTimes  = oracle.NewCheck("L12", "times of transfers")
	checkStageTimes     = oracle.NewCheck("L12", "times of the stages of puts")
	checkPageGauges     = oracle.NewCheck("L12", "pages by state")
	checkRowGauges      = oracle.NewCheck("L12", "rows of tables")
)

// plane is the name of the simulator's data plane.
const plane = "sim"

// metricOracle judges the numbers that nodes export.
type metricOracle struct {
	oracleBase
	perIncarnation[metricState]
	readings []metrics.Reading   `snap:"scratch"`
	told     []metrics.FactCount `snap:"scratch"`
}

func (*metricOracle) subscribe(l *oracle.Subscriptions[metricOracle]) {
	oracle.On(l, func(o *metricOracle, _ *oracle.Call, e world.SteppingMachine) { o.recordEvent(e.Node, e.Event) })
	oracle.On(l, func(o *metricOracle, _ *oracle.Call, e world.EffectEmitted) { o.recordEffect(e.Node, e.Effect) })
	oracle.On(l, func(o *metricOracle, _ *oracle.Call, e pd.CommandOutcome) {
		o.recordOutcome(e.Node, e.Command, e.Effect)
	})
	oracle.On(l, func(o *metricOracle, _ *oracle.Call, e pd.ProxyNotified) {
		state := o.stateOf(e.Node)
		state.notices = append(state.notices, noticeTruth{state.posted, uint64(e.Message.Failed)})
	})
	oracle.On(l, func(o *metricOracle, _ *oracle.Call, e world.StartingTransfer) { o.recordTransfer(e.Node, e.Transfer) })
	oracle.On(l, func(o *metricOracle, _ *oracle.Call, e world.TransferDone) { o.recordTransferDone(&e) })
	oracle.On(l, func(o *metricOracle, _ *oracle.Call, e world.HalfStored) { o.recordMoved(e.Transfer, e.Pair, e.Half) })
	oracle.On(l, func(o *metricOracle, _ *oracle.Call, e world.PageLoaded) { o.recordLoaded(e.Transfer, e.Pair) })
	oracle.On(l, func(o *metricOracle, _ *oracle.Call, e world.FactObserved) {
		if e.Effect.Fact == effects.FactPutEnded || e.Effect.Fact == effects.FactLayersSent ||
			e.Effect.Fact == effects.FactRegistered {
			o.expectStages(e.Node, e.Effect)
		}
	})
	oracle.On(l, func(o *metricOracle, _ *oracle.Call, e stepCounted) { o.verifyStep(e.node, e.stats) })
}

// metricState has the numbers of an incarnation of a node as the node exports them, and the counts of the oracle.
type metricState struct {
	meter     metrics.Meter         `snap:"skip"`
	facts     []factTruth           `snap:"skip"`
	moved     []movedTruth          `snap:"skip"`
	transfers []transferTruth       `snap:"skip"` // those that are not done
	grants    []grantTruth          `snap:"skip"`
	landings  []landingTruth        `snap:"skip"` // those without a Confirm
	leasedMax int                   `snap:"skip"`
	puts      int                   `snap:"skip"` // puts without an outcome, and puts whose memory is not back
	fetches   int                   `snap:"skip"`
	notices   []noticeTruth         `snap:"skip"`
	reads     []readTruth           `snap:"skip"`
	posted    effects.Corr          `snap:"skip"`    // the newest message without a reply
	expected  []metrics.Observation `snap:"scratch"` // what the histograms must have of this step
	received  effects.Ticket        `snap:"scratch"` // the command of this step
	searches  bool                  `snap:"skip"`    // a Bring without a named peer has been given
	// holdsLanded: the machine has held pages that had landed back until their checksums were compared. From then on the
	// counts of pages are limits, as on leased planes.
	holdsLanded bool `snap:"skip"`
	changed     bool `snap:"scratch"` // something was counted since the last comparison
}

func (s *metricState) clearForReuse() {
	s.meter.Reset()
	*s = metricState{meter: s.meter, facts: s.facts[:0], moved: s.moved[:0], transfers: s.transfers[:0], grants: s.grants[:0],
		landings: s.landings[:0], notices: s.notices[:0], reads: s.reads[:0], expected: s.expected[:0]}
}

type (
	// factTruth is how often a node must have stated a fact.
	factTruth struct {
		fact         effects.Fact
		code         effects.Code
		times, items uint64
		// maybe are further commands that ended in the step in which they came. A machine states no fact of those for which
		// there was nothing to do.
		maybe, maybeItems uint64
	}
	// movedTruth counts the transfers that ended with a code, and the bytes that their stores or loads moved.
	movedTruth struct {
		read         bool
		code         effects.Code
		times, bytes uint64
	}
	// transferTruth is a transfer that is not done.
	transferTruth struct {
		id     uint64
		began  effects.Time
		halves []uint8 // by pair: the halves that were moved
		parts  int     // parts of pages that were moved
		// pageBytes is the size of the pages: of the local ones, or of those into which layers are gathered.
		pageBytes uint32
	}
	// grantTruth is a grant that drivers know, with the pages that have not landed.
	grantTruth struct {
		id       effects.GrantID
		read     bool
		revoking bool
		bearer   bool // any peer that knows the grant may use it
		pages    int
		open     []uint32
		held     int // pages that have landed, and of which the machine may wait for the checksums
	}
	landingTruth struct {
		landing effects.Landing
		grant   effects.GrantID
		pages   []uint32
	}
	// readTruth is a read into pages that were taken for it, until nothing stores into them any more.
	readTruth struct {
		corr     effects.Corr
		pages    int
		notAfter effects.Time
		stopping bool // the machine waits for proof that nothing stores into the pages
	}
	// noticeTruth is a notification to the proxy that is not done.
	noticeTruth struct {
		corr    effects.Corr
		missing uint64
	}
)

// recordEvent counts what an event tells a machine, just before the machine has it.
func (or *metricOracle) recordEvent(n *world.Node, ev effects.Event) {
	state := or.stateOf(n)
	state.meter.RecordEvent(ev)
	switch e := ev.(type) {
	case *effects.Command:
		state.received = e.Ticket
		switch b := e.Body.(type) {
		case *p2p.Bring:
			state.searches = state.searches || b.From == (p2p.Peer{})
		case *ops.Put:
			state.puts++
		case *ops.Fetch:
			state.fetches++
		}
	case *effects.TransferDone:
		if e.Settled {
			state.endRead(e.Corr, e.Code, or.w.ReadClock(n))
		} else {
			state.quarantineRead(e.Corr)
		}
	case *effects.Settled:
		state.endRead(e.Corr, effects.Failed, or.w.ReadClock(n))
	case *effects.Landed:
		x := landingTruth{landing: e.Landing, grant: e.Grant}
		for _, p := range e.Pages {
			x.pages = append(x.pages, p.Index)
		}
		state.landings = append(state.landings, x)
	case *effects.Revoked:
		if g := state.findGrant(e.Grant); g != nil && !g.read && len(g.open) > 0 {
			state.count(effects.FactReclaimed, effects.OK, uint64(len(g.open)))
		}
		state.grants = slices.DeleteFunc(state.grants, func(g grantTruth) bool { return g.id == e.Grant })
	case *effects.SendDone:
		if i := slices.IndexFunc(state.notices, func(x noticeTruth) bool { return x.corr == e.Corr }); i >= 0 {
			if e.Code == effects.OK {
				state.count(effects.FactProxyTold, effects.OK, state.notices[i].missing)
			}
			state.notices = slices.Delete(state.notices, i, i+1)
		}
	default: // The other events change none of the numbers.
	}
}

// recordEffect counts what a machine emits, before the driver carries it out.
func (or *metricOracle) recordEffect(n *world.Node, e effects.Effect) {
	state := or.stateOf(n)
	state.meter.RecordEffect(or.w.ReadClock(n), e)
	if _, is := e.(*effects.Observe); is {
		state.changed = true
	}
	switch e := e.(type) {
	case *effects.Grant:
		g := grantTruth{id: e.ID, read: e.Read, bearer: e.Peer == (effects.Incarnation{}), pages: len(e.Pages)}
		for _, p := range e.Pages {
			g.open = append(g.open, p.Index)
		}
		state.grants = append(state.grants, g)
		state.count(effects.FactGranted, effects.OK, uint64(len(e.Pages)))
		state.leasedMax = max(state.leasedMax, state.countLeased())
	case *effects.Cancel:
		state.quarantineRead(e.Corr)
	case *effects.Revoke:
		if g := state.findGrant(e.Grant); g != nil {
			g.revoking = true
		}
	case *effects.Confirm:
		i := slices.IndexFunc(state.landings, func(x landingTruth) bool { return x.landing == e.Landing })
		if i < 0 {
			return
		}
		x := state.landings[i]
		state.landings = slices.Delete(state.landings, i, i+1)
		if g := state.findGrant(x.grant); g != nil {
			before := len(g.open)
			g.open = slices.DeleteFunc(g.open, func(p uint32) bool { return slices.Contains(x.pages, p) })
			if w := n.Grants[x.grant]; w != nil && w.IsRequestedByOwner() && or.w.Conditions.Sums {
				g.held += before - len(g.open)
				state.holdsLanded = true
			}
		}
	case *effects.Return:
		if _, is := or.w.Commands[e.Ticket-1].Body.(*ops.Put); is {
			state.puts--
		}
	case *effects.Post:
		state.posted = e.Corr
	default: // The other effects change none of the numbers.
	}
}

// endRead records that a read touches its pages no more. The pages of a read that failed become free. A machine that learns
// too late of the end of a read, or that has stopped it, may not use the pages either.
func (s *metricState) endRead(corr effects.Corr, code effects.Code, now effects.Time) {
	if i := slices.IndexFunc(s.reads, func(x readTruth) bool { return x.corr == corr }); i >= 0 {
		if x := &s.reads[i]; code != effects.OK {
			s.count(effects.FactReclaimed, effects.OK, uint64(x.pages))
		} else if x.stopping || now >= x.notAfter {
			y := s.factOf(effects.FactReclaimed, effects.OK)
			y.maybe++
			y.maybeItems += uint64(x.pages)
		}
		s.reads = slices.Delete(s.reads, i, i+1)
	}
}

// quarantineRead records that a machine stops a read.
func (s *metricState) quarantineRead(corr effects.Corr) {
	for i := range s.reads {
		if s.reads[i].corr == corr {
			s.reads[i].stopping = true
		}
	}
}

func (s *metricState) findGrant(id effects.GrantID) *grantTruth {
	for i := range s.grants {
		if s.grants[i].id == id {
			return &s.grants[i]
		}
	}
	return nil
}

// recordAborted records that a peer has given a grant back whose pages it does not write any more.
func (or *metricOracle) recordAborted(n *world.Node, id effects.GrantID) {
	state := or.stateOf(n)
	if g := state.findGrant(id); g != nil && len(g.open) > 0 {
		state.count(effects.FactReclaimed, effects.OK, uint64(len(g.open)))
		if or.w.Conditions.Sums { // The machine may be comparing the pages because of a commit before.
			g.held += len(g.open)
			state.holdsLanded = true
		}
		g.open = g.open[:0]
	}
}

// countLeased returns the number of pages under read leases; a page counts once for each.
func (s *metricState) countLeased() (pages int) {
	for i := range s.grants {
		if s.grants[i].read {
			pages += s.grants[i].pages
		}
	}
	return pages
}

// count counts a fact that the machine must state.
func (s *metricState) count(fact effects.Fact, code effects.Code, items uint64) {
	x := s.factOf(fact, code)
	x.times++
	x.items += items
}

// countEnd counts a fact that the machine must state of the end of a command, unless the command ended at once.
func (s *metricState) countEnd(t effects.Ticket, fact effects.Fact, code effects.Code, items uint64) {
	if t != s.received {
		s.count(fact, code, items)
		return
	}
	x := s.factOf(fact, code)
	x.maybe++
	x.maybeItems += items
}

func (s *metricState) factOf(fact effects.Fact, code effects.Code) *factTruth {
	s.changed = true
	for i := range s.facts {
		if x := &s.facts[i]; x.fact == fact && x.code == code {
			return x
		}
	}
	s.facts = append(s.facts, factTruth{fact: fact, code: code})
	return &s.facts[len(s.facts)-1]
}

// recordOutcome counts a command that has its outcome.
func (or *metricOracle) recordOutcome(n *world.Node, c *pd.Command, e *effects.Deliver) {
	state := or.stateOf(n)
	switch b := c.Body.(type) {
	case *ops.Put:
		if !e.Held {
			state.puts--
		}
		if !isRefusal(e) {
			state.count(effects.FactPutEnded, e.Code, uint64(len(b.Keys)))
		}
	case *ops.Fetch:
		state.fetches--
	case *recall.Recall:
		if !isRefusal(e) {
			state.count(effects.FactRecallEnded, e.Code, uint64(e.Hits))
		}
	case *p2p.Bring:
		if !isRefusal(e) && b.From != (p2p.Peer{}) {
			state.countEnd(e.Ticket, effects.FactBrought, e.Code, 0)
		}
	case *register.Register:
		if !isRefusal(e) {
			state.count(effects.FactReceived, e.Code, 0)
		}
	case *register.Finished:
		if !isRefusal(e) {
			state.countEnd(e.Ticket, effects.FactWritten, e.Code, uint64(e.Sent))
		}
	case *layerwise.Finish:
		if !isRefusal(e) {
			state.count(effects.FactLayersEnded, e.Code, 0)
		}
	case *end.End:
		if !isRefusal(e) {
			state.count(effects.FactEndTold, e.Code, uint64(b.Code))
		}
	default: // No fact tells the end of another command.
	}
}

func (or *metricOracle) recordTransfer(n *world.Node, t *world.Transfer) {
	state := or.stateOf(n)
	if t.Read && n.Pool.Pages[t.Pairs[0].Local.Index].Reserved == 0 && !n.IsStaging(&n.Pool.Pages[t.Pairs[0].Local.Index]) && !n.KeepsOffers {
		state.count(effects.FactGranted, effects.OK, uint64(len(t.Pairs)))
		state.reads = append(state.reads, readTruth{corr: t.Corr, pages: len(t.Pairs), notAfter: t.NotAfter})
	}
	x := transferTruth{id: t.ID, began: or.w.ReadClock(n), halves: make([]uint8, len(t.Pairs)), pageBytes: t.Local.PageBytes}
	if t.Gather.Layers > 0 {
		x.pageBytes = t.Remote.PageBytes
	}
	state.transfers = append(state.transfers, x)
}

// transferOf returns the record of a transfer, or nil if the transfer is done or its initiator is gone.
func (or *metricOracle) transferOf(t *world.Transfer) (*metricState, *transferTruth) {
	if !t.Local.IsAlive() || t.Local.Node.Custom {
		return nil, nil
	}
	state := or.stateOf(t.Local.Node)
	if i := slices.IndexFunc(state.transfers, func(x transferTruth) bool { return x.id == t.ID }); i >= 0 {
		return state, &state.transfers[i]
	}
	return nil, nil
}

// recordLoaded records that half of a pair's page is read: first the first half, then the second.
func (or *metricOracle) recordLoaded(t *world.Transfer, pair int) {
	if _, x := or.transferOf(t); x != nil {
		or.recordMoved(t, pair, int(x.halves[pair]&1))
	}
}

// recordMoved records that half of a pair's page is moved.
func (or *metricOracle) recordMoved(t *world.Transfer, pair, half int) {
	_, x := or.transferOf(t)
	if x == nil || x.halves[pair]&(1<<half) != 0 {
		return
	}
	x.halves[pair] |= 1 << half
	const each = world.Parts / 2
	x.parts += min(max(0, int(t.Pairs[pair].Local.Length*world.Parts/x.pageBytes)-half*each), each)
}

// recordTransferDone counts a transfer that is done, and judges the value of the histogram.
func (or *metricOracle) recordTransferDone(e *world.TransferDone) {
	state, x := or.transferOf(e.Transfer)
	if x == nil {
		return
	}
	bytes := uint64(0)
	if e.Code == effects.OK {
		bytes = uint64(x.parts) * uint64(x.pageBytes) / world.Parts
	}
	i := slices.IndexFunc(state.moved, func(m movedTruth) bool { return m.read == e.Transfer.Read && m.code == e.Code })
	if i < 0 {
		i = len(state.moved)
		state.moved = append(state.moved, movedTruth{read: e.Transfer.Read, code: e.Code})
	}
	state.moved[i].times++
	state.moved[i].bytes += bytes
	direction, outcome := metrics.DirectionWrite, metrics.OutcomeOK
	if e.Transfer.Read {
		direction = metrics.DirectionRead
	}
	if e.Code != effects.OK {
		outcome = metrics.OutcomeFailed
	}
	state.changed = true
	state.expected = append(state.expected, metrics.Observation{
		Histogram: metrics.TransferDuration, Labels: [3]string{plane, direction, outcome}, Took: e.Node.ReadingAt(e.Ended).Sub(x.began),
	})
	state.transfers = slices.DeleteFunc(state.transfers, func(x transferTruth) bool { return x.id == e.Transfer.ID })
}

// expectStages records what a node must have observed of a put that has ended: the times that putTimeOracle has measured,
// or those of the report, where nothing is measured (L11).
func (or *metricOracle) expectStages(n *world.Node, e *effects.Observe) {
	if e.Report == nil {
		return
	}
	state, outcome, spent := or.stateOf(n), metrics.OutcomeFailed, e.Report.Phases
	x := or.oracles().putTimes.stateOf(n).findReported(e)
	if e.Fact != effects.FactPutEnded && e.Code == effects.OK || e.Fact == effects.FactPutEnded &&
		or.w.Commands[e.ID-1].Code == effects.OK {
		outcome = metrics.OutcomeOK
	}
	if x != nil && !x.uncertain && or.w.Script == nil && !pd.InfoOf(n).Cfg.Shares {
		spent = x.spent
	}
	for p, took := range spent {
		state.expected = append(state.expected, metrics.Observation{
			Histogram: metrics.PutStage, Labels: [3]string{effects.Phase(p).String(), outcome}, Took: took,
		})
	}
}
