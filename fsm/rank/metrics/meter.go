package metrics

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// The names of the counters.
const (
	Facts         = "facts_total"          // by fact and code
	FactItems     = "fact_items_total"     // by fact and code
	Transfers     = "transfers_total"      // by plane, direction and code
	TransferBytes = "transfer_bytes_total" // by plane and direction
)

// The names of the histograms.
const (
	PutStage         = "put_stage_seconds"         // by stage and outcome
	TransferDuration = "transfer_duration_seconds" // by plane, direction and outcome
)

// The values of the label direction: pages of this node are written to a peer, or pages of a peer are read.
const (
	DirectionWrite = "write"
	DirectionRead  = "read"
)

// The values of the label outcome.
const (
	OutcomeOK     = "ok"
	OutcomeFailed = "failed"
)

// PlaneNone is the value of the label plane for transfers over a link that the driver does not have.
const PlaneNone = "none"

// A Meter counts what a machine states and what data planes do for the machine. The driver gives it each event just
// before the machine's step, and each effect of the step. The zero value is ready to use.
//
// A meter is not safe for concurrent use.
type Meter struct {
	facts     []FactCount
	transfers []transferCount
	importing []importing // imports in progress
	links     []link
	moving    []moving // transfers that are not done
	observed  []Observation
}

// A FactCount is the number of times that the machine observed one kind of fact with one code. Items is the sum of what
// these facts count, which depends on the kind: chunks, pages or others (see effects.Fact).
type FactCount struct {
	Fact         effects.Fact
	Code         effects.Code
	Times, Items uint64
}

// transferCount counts the transfers over a plane that ended with a code, and the bytes that they moved.
type transferCount struct {
	plane        string
	read         bool
	code         effects.Code
	times, bytes uint64
}

type importing struct {
	corr  effects.Corr
	plane string
}

type link struct {
	id    effects.Link
	plane string
}

// moving is a transfer between its effect and its TransferDone.
type moving struct {
	corr  effects.Corr
	plane string
	read  bool
	bytes uint64
	began effects.Time
}

// An Observation is a value of a histogram.
type Observation struct {
	Histogram string
	Labels    [3]string
	Took      effects.Duration
}

// Reset forgets everything and keeps the memory.
func (m *Meter) Reset() {
	*m = Meter{facts: m.facts[:0], transfers: m.transfers[:0], importing: m.importing[:0], links: m.links[:0], moving: m.moving[:0],
		observed: m.observed[:0]}
}

// RecordEvent records an event, before the machine has it.
func (m *Meter) RecordEvent(ev effects.Event) {
	switch e := ev.(type) {
	case *effects.Imported:
		if i := slices.IndexFunc(m.importing, func(x importing) bool { return x.corr == e.Corr }); i >= 0 {
			if e.Code == effects.OK {
				m.links = append(m.links, link{e.Link, m.importing[i].plane})
			}
			m.importing = slices.Delete(m.importing, i, i+1)
		}
	case *effects.Dropped:
		m.links = slices.DeleteFunc(m.links, func(x link) bool { return x.id == e.Link })
	case *effects.TransferDone:
		m.endTransfer(e)
	default: // No other event says anything about a link or a transfer.
	}
}

// RecordEffect records an effect that the machine emits at the time now.
func (m *Meter) RecordEffect(now effects.Time, e effects.Effect) {
	switch e := e.(type) {
	case *effects.Import:
		m.importing = append(m.importing, importing{e.Corr, e.Plane})
	case *effects.Transfer:
		m.beginTransfer(now, e)
	case *effects.Observe:
		m.recordFact(e)
	default: // No other effect is counted.
	}
}

func (m *Meter) beginTransfer(now effects.Time, e *effects.Transfer) {
	x := moving{corr: e.Corr, plane: PlaneNone, read: e.Read, began: now}
	for i := range m.links {
		if m.links[i].id == e.Link {
			x.plane = m.links[i].plane
		}
	}
	for i := range e.Pairs {
		x.bytes += uint64(e.Pairs[i].Local.Length)
	}
	m.moving = append(m.moving, x)
}

// endTransfer counts a transfer that is done. The bytes of a transfer that failed are not counted, because nobody knows
// how many of them were moved.
func (m *Meter) endTransfer(e *effects.TransferDone) {
	i := slices.IndexFunc(m.moving, func(x moving) bool { return x.corr == e.Corr })
	if i < 0 {
		return
	}
	x := m.moving[i]
	m.moving[i] = m.moving[len(m.moving)-1]
	m.moving = m.moving[:len(m.moving)-1]
	c := m.countOf(x.plane, x.read, e.Code)
	if c.times++; e.Code == effects.OK {
		c.bytes += x.bytes
	}
	m.observed = append(m.observed, Observation{
		TransferDuration, [3]string{x.plane, directionOf(x.read), outcomeOf(e.Code)}, e.At.Sub(x.began),
	})
}

func (m *Meter) countOf(plane string, read bool, code effects.Code) *transferCount {
	for i := range m.transfers {
		if c := &m.transfers[i]; c.plane == plane && c.read == read && c.code == code {
			return c
		}
	}
	m.transfers = append(m.transfers, transferCount{plane: plane, read: read, code: code})
	return &m.transfers[len(m.transfers)-1]
}

func (m *Meter) recordFact(e *effects.Observe) {
	if int(e.Fact) >= effects.FactCount || int(e.Code) >= effects.CodeCount {
		return
	}
	c := m.factOf(e.Fact, e.Code)
	c.Times++
	c.Items += uint64(e.Count)
	isPut := e.Fact == effects.FactPutEnded || e.Fact == effects.FactLayersSent || e.Fact == effects.FactRegistered
	if !isPut || e.Report == nil {
		return
	}
	for p, took := range e.Report.Phases {
		m.observed = append(m.observed, Observation{
			PutStage, [3]string{effects.Phase(p).String(), outcomeOf(e.Code)}, took,
		})
	}
}

func (m *Meter) factOf(fact effects.Fact, code effects.Code) *FactCount {
	for i := range m.facts {
		if c := &m.facts[i]; c.Fact == fact && c.Code == code {
			return c
		}
	}
	m.facts = append(m.facts, FactCount{Fact: fact, Code: code})
	return &m.facts[len(m.facts)-1]
}

// AppendFacts appends the counts of facts, in the order in which the first of each was observed.
func (m *Meter) AppendFacts(all []FactCount) []FactCount { return append(all, m.facts...) }

// AppendCounters appends the present values of all counters.
func (m *Meter) AppendCounters(all []Reading) []Reading {
	for i := range m.facts {
		c := &m.facts[i]
		labels := [3]string{c.Fact.String(), c.Code.String()}
		all = append(all, Reading{Facts, labels, c.Times}, Reading{FactItems, labels, c.Items})
	}
	for i := range m.transfers {
		c := &m.transfers[i]
		direction := directionOf(c.read)
		all = append(all, Reading{Transfers, [3]string{c.plane, direction, c.code.String()}, c.times})
		if c.code == effects.OK {
			all = append(all, Reading{TransferBytes, [3]string{c.plane, direction}, c.bytes})
		}
	}
	return all
}

// TakeObservations returns the values of histograms since the last call. They are valid until the next RecordEvent or
// RecordEffect.
func (m *Meter) TakeObservations() []Observation {
	all := m.observed
	m.observed = m.observed[:0]
	return all
}

func directionOf(read bool) string {
	if read {
		return DirectionRead
	}
	return DirectionWrite
}

func outcomeOf(code effects.Code) string {
	if code == effects.OK {
		return OutcomeOK
	}
	return OutcomeFailed
}
