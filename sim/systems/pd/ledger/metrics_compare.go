package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/metrics"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// The comparisons of L12: the numbers of a node after each step, with what metricState has counted.

// verifyStep compares the numbers of a node after a step.
func (or *metricOracle) verifyStep(n *world.Node, s *rank.Stats) {
	state := or.stateOf(n)
	or.verifyObservations(n, state)
	if or.w.Failure == nil && state.changed {
		or.verifyFacts(n, state)
	}
	if or.w.Failure == nil && state.changed {
		or.verifyTransfers(n, state)
	}
	state.received = 0
	if state.changed = false; or.w.Failure == nil {
		or.verifyGauges(n, state, s)
	}
}

// verifyObservations compares the values of histograms. Both lists are in the order in which the transfers and puts ended.
func (or *metricOracle) verifyObservations(n *world.Node, state *metricState) {
	all := state.meter.TakeObservations()
	for i := range max(len(all), len(state.expected)) {
		var got, want metrics.Observation
		if i < len(all) {
			got = all[i]
		}
		if i < len(state.expected) {
			want = state.expected[i]
		}
		if or.countJudged(timesCheck(&got, &want)); got != want {
			or.fail(timesCheck(&got, &want), "node %d counts %d ns as %s %q, and %d ns as %s %q were spent", n.AsSubject(),
				got.Took, got.Histogram, got.Labels, want.Took, want.Histogram, want.Labels)
			break
		}
	}
	state.expected = state.expected[:0]
}

// verifyFacts compares the counts of facts, in both directions.
func (or *metricOracle) verifyFacts(n *world.Node, state *metricState) {
	or.told = state.meter.AppendFacts(or.told[:0])
	for i := range or.told {
		x := &or.told[i]
		if !slices.ContainsFunc(state.facts, func(y factTruth) bool { return y.fact == x.Fact && y.code == x.Code }) {
			or.verifyFact(n, state, x, &factTruth{fact: x.Fact, code: x.Code})
		}
	}
	for i := range state.facts {
		y := &state.facts[i]
		j := slices.IndexFunc(or.told, func(x metrics.FactCount) bool { return y.fact == x.Fact && y.code == x.Code })
		x := metrics.FactCount{Fact: y.fact, Code: y.code}
		if j >= 0 {
			x = or.told[j]
		}
		or.verifyFact(n, state, &x, y)
	}
}

func (or *metricOracle) verifyFact(n *world.Node, state *metricState, got *metrics.FactCount, want *factTruth) {
	truth := &factTruths[got.Fact]
	if or.w.Failure != nil || !truth.times && !truth.items {
		return
	}
	if truth.onlyIf != nil && !truth.onlyIf(or, n, state, got.Code) {
		or.countVoid(checkFactCounts)
		return
	}
	or.countJudged(checkFactCounts)
	if truth.times && (got.Times < want.times || got.Times > want.times+want.maybe) ||
		truth.items && (got.Items < want.items || got.Items > want.items+want.maybeItems) {
		or.fail(checkFactCounts, "node %d counts %d times %s with code %s and %d items, and there were %d with %d", n.AsSubject(), got.Times,
			got.Fact, got.Code, got.Items, want.times, want.items)
	}
}

// verifyTransfers compares the counts and the bytes of transfers.
func (or *metricOracle) verifyTransfers(n *world.Node, state *metricState) {
	or.readings = state.meter.AppendCounters(or.readings[:0])
	counts, bytes := 0, uint64(0)
	for i := range or.readings {
		r := &or.readings[i]
		if r.Metric != metrics.Transfers && r.Metric != metrics.TransferBytes {
			continue
		}
		want := uint64(0)
		for _, m := range state.moved {
			switch {
			case m.read != (r.Labels[1] == metrics.DirectionRead) || r.Labels[0] != plane:
			case r.Metric == metrics.TransferBytes && m.code == effects.OK:
				want = m.bytes
			case r.Metric == metrics.Transfers && m.code.String() == r.Labels[2]:
				want = m.times
			}
		}
		if or.countJudged(checkTransferCounts); r.Value != want {
			or.fail(checkTransferCounts, "node %d has %d as %s %q, and %d were moved", n.AsSubject(), r.Value, r.Metric, r.Labels, want)
			return
		}
		if r.Metric == metrics.Transfers {
			counts++
		} else {
			bytes += want
		}
	}
	moved := uint64(0)
	for i := range state.moved {
		moved += state.moved[i].bytes
	}
	if counts != len(state.moved) || bytes != moved {
		or.fail(checkTransferCounts, "node %d counts %d kinds of transfers and %d bytes, and there were %d and %d", n.AsSubject(), counts, bytes,
			len(state.moved), moved)
	}
}

// verifyGauges compares the gauges of a node.
func (or *metricOracle) verifyGauges(n *world.Node, state *metricState, s *rank.Stats) {
	p := or.countOpenPages(n, state)
	or.readings = metrics.AppendGauges(or.readings[:0], s)
	for i := range or.readings {
		r := &or.readings[i]
		b, known := or.boundsOf(n, state, &p, r)
		if !known {
			continue
		}
		if or.countJudged(gaugeCheck(r.Metric)); r.Value < uint64(b.least) || r.Value > uint64(b.most) {
			or.fail(gaugeCheck(r.Metric), "node %d has %d as %s %q, and there are %d to %d", n.AsSubject(), r.Value,
				r.Metric, r.Labels, b.least, b.most)
			return
		}
	}
	// The states are bounded by themselves; together they are known.
	if got := s.PagesGranted + s.PagesQuarantined; got < p.open.least || got > p.open.most {
		or.fail(checkPageGauges, "node %d has %d pages that may be written, and there are %d to %d", n.AsSubject(), got, p.open.least,
			p.open.most)
	}
}

// timesCheck returns the check that a value of a histogram belongs to.
func timesCheck(got, want *metrics.Observation) oracle.Check {
	if want.Histogram == metrics.PutStage || got.Histogram == metrics.PutStage {
		return checkStageTimes
	}
	return checkTransferTimes
}

// gaugeCheck returns the check that a gauge belongs to.
func gaugeCheck(metric string) oracle.Check {
	if metric == metrics.TableRows {
		return checkRowGauges
	}
	return checkPageGauges
}

// bounds are the least and the most that a gauge may have.
type bounds struct{ least, most int }

func exactly(n int) bounds { return bounds{n, n} }

// openPages are the pages and grants that drivers know of a node.
type openPages struct {
	granted, quarantined, open, leased, leasedMax, grants bounds
}

// countOpenPages counts what peers may write and read. On leased planes the end of a grant is up to the machine, which
// believes what a peer says or waits for an end of time, so that the counts are only limits there.
func (or *metricOracle) countOpenPages(n *world.Node, state *metricState) (p openPages) {
	var granted, quarantined, grants, done int
	held := 0
	for i := range state.grants {
		held += state.grants[i].held
		switch g := &state.grants[i]; {
		case g.read:
			grants++
		case g.revoking:
			grants++
			quarantined += len(g.open)
		case len(g.open) > 0:
			grants++
			granted += len(g.open)
		default:
			done++ // The machine may keep the grant for the commit.
		}
	}
	stopping := 0 // The machine says when a read that it stops counts as quarantined.
	for _, x := range state.reads {
		if grants++; x.stopping {
			stopping += x.pages
		} else {
			granted += x.pages
		}
	}
	leased, all := state.countLeased(), granted+quarantined+stopping
	p = openPages{bounds{granted, granted + stopping}, bounds{quarantined, quarantined + stopping}, exactly(all), exactly(leased),
		exactly(state.leasedMax), bounds{grants, grants + done}}
	if state.holdsLanded {
		all += held
		p.granted, p.quarantined, p.open = bounds{0, all}, bounds{0, all}, bounds{0, all}
	}
	if or.w.Conditions.Leased {
		p = openPages{bounds{0, all}, bounds{0, all}, bounds{0, all}, bounds{0, leased}, bounds{0, state.leasedMax}, bounds{0, grants + done}}
	}
	return p
}

// boundsOf returns what a gauge may have, or false if the oracle has no truth for it.
func (or *metricOracle) boundsOf(n *world.Node, state *metricState, p *openPages, r *metrics.Reading) (b bounds, known bool) {
	switch r.Metric {
	case metrics.PagesCapacity:
		switch r.Labels[0] {
		case metrics.PoolEngine:
			return exactly(n.EnginePages()), true
		case metrics.PoolArena:
			return exactly(n.ArenaPages), true
		case metrics.PoolDevice:
			return exactly(n.SecondPages), true
		}
	case metrics.Pages:
		switch r.Labels[1] {
		case "granted":
			return p.granted, true
		case "quarantined":
			return p.quarantined, true
		case "leased":
			return p.leased, true
		}
	case metrics.PagesLeased:
		return p.leasedMax, true
	case metrics.TableRows:
		switch r.Labels[0] {
		case "puts":
			return bounds{state.puts, noLimit}, true
		case "fetches":
			return exactly(state.fetches), true
		case "reserves":
			return exactly(or.oracles().commandTables.stateOf(n).reserves), true
		case "gets":
			return exactly(or.oracles().commandTables.stateOf(n).gets), true
		case "grants":
			return p.grants, true
		case "fills":
			return p.open, true
		}
	}
	return bounds{}, false
}

const noLimit = 1 << 30
