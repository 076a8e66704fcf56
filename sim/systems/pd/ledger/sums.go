package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Where a plan has Sums, every engine states the checksum of each chunk. A machine must pass it on with the chunk, so
// that every driver that a chunk passes compares the chunk with the checksum that its first engine stated. Other oracles
// find a changed chunk that is delivered all the same (S1, S23).

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkSumPassedOn = oracle.NewCheck("S33", "checksums of unchanged pages")
	checkSumStated   = oracle.NewCheck("S33", "checksums of delivered chunks")
)

// sumOracle judges whether the checksum of a chunk goes with the chunk.
type sumOracle struct{ oracleBase }

func (*sumOracle) subscribe(l *oracle.Subscriptions[sumOracle]) {
	oracle.On(l, func(o *sumOracle, _ *oracle.Call, e world.SumCompared) { o.verifyCompared(&e) })
	oracle.On(l, func(o *sumOracle, _ *oracle.Call, e world.PageVerified) { o.verifyPage(&e) })
	oracle.On(l, func(o *sumOracle, _ *oracle.Call, e pd.GetOutcome) {
		if o.w.Conditions.Sums {
			o.verifyDelivered(e.Node, e.Effect.Pages)
		}
	})
}

// messagesMayChange reports whether a message may have arrived with another checksum than its sender wrote.
func (o *sumOracle) messagesMayChange() bool {
	return slices.ContainsFunc(changingFaults, func(f plan.Fault) bool { return o.w.Result.FaultCounts[f] > 0 })
}

// verifyCompared checks that a page does not fail its checksum unless one of its bits was changed. A page of an engine
// that the engine has refilled meanwhile is one of another chunk.
func (o *sumOracle) verifyCompared(e *world.SumCompared) {
	if o.w.Script != nil { // A test states checksums that are wrong.
		return
	}
	if e.Same {
		o.countJudged(checkSumPassedOn)
		return
	}
	p := e.Transfer.Pairs[e.Pair]
	source := &e.Transfer.Local.Pages[p.Local.Index]
	if e.Transfer.Read {
		source = &e.Transfer.Remote.Pages[p.Remote.Index]
	}
	if o.w.Conditions.Leased && o.w.ReadClock(e.Node) > e.Transfer.NotAfter {
		o.countVoid(checkSumPassedOn) // The lease may be over: then the page may hold another chunk, and nobody uses the result.
		return
	}
	if e.Transfer.WasFlipped() || source.WasFlippedIn(source.Generation) || o.messagesMayChange() {
		o.countVoid(checkSumPassedOn)
		return
	}
	o.countJudged(checkSumPassedOn)
	o.fail(checkSumPassedOn, "a page that reaches node %d by transfer %d has another checksum than was stated, and no bit was changed",
		e.Node.AsSubject(), oracle.Transfer(e.Transfer.ID))
}

// verifyPage does the same for a page that the driver compares because the machine asked for it.
func (o *sumOracle) verifyPage(e *world.PageVerified) {
	pg := &e.Node.Pool.Pages[e.Page.Index]
	switch {
	case e.Same:
		o.countJudged(checkSumPassedOn)
	case pg.StoredFlipped == e.Page.Generation || o.messagesMayChange():
		o.countVoid(checkSumPassedOn)
	default:
		o.countJudged(checkSumPassedOn)
		o.fail(checkSumPassedOn, "page %d of node %d has another checksum than was stated, and no bit was changed",
			e.Node.PageSubject(e.Page.Index), e.Node.AsSubject())
	}
}

// verifyDelivered checks that a Get delivers each chunk with its checksum.
func (o *sumOracle) verifyDelivered(n *world.Node, pages []effects.Page) {
	flags := o.w.SourcePlan.Topology.Flags
	for _, p := range pages {
		pg := &n.Pool.Pages[p.Index]
		switch {
		case o.messagesMayChange() || flags["layerwise"] || pg.TrustedGrant != 0 || pg.WasFlippedIn(p.Generation):
			o.countVoid(checkSumStated)
		case p.Sum == 0 && o.mayLackSum():
			o.countVoid(checkSumStated)
		case p.Sum != o.w.SumOf(n, p):
			o.countJudged(checkSumStated)
			o.fail(checkSumStated, "node %d delivers page %d with checksum %d, and its content has %d", n.AsSubject(),
				n.PageSubject(p.Index), uint32(p.Sum), uint32(o.w.SumOf(n, p)))
			return
		default:
			o.countJudged(checkSumStated)
		}
	}
}

// mayLackSum reports whether a chunk of the plan may have no checksum: one of a plain sender, or one whose key occurs
// twice in a put with two lengths.
func (o *sumOracle) mayLackSum() bool {
	return slices.ContainsFunc(o.w.SourcePlan.Jobs, func(j plan.Job) bool {
		last := len(j.Keys) - 1
		return j.Plain || last > 0 && slices.Contains(j.Keys[:last], j.Keys[last])
	})
}
