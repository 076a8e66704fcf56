package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Coverage counts which odd paths a run took, or a campaign. Each has a name that
// starts with its section: "mark sender/...", "fact ready", "transfer expired",
// "outcome put ok", "effect sender Grant", "fault crash", "conjunction frozen-over-restart";
// "judged S3 stores" and "void S3 stores" for what oracles had to say, and had not; and "step",
// with the state of what an event is about and the event: "step sender's put moving × Settled".
type Coverage struct{ counts []uint64 } // by point; nil is none

// A point is the place of one path among the counts.
type point int

// Where the sections of the counts begin.
const (
	pointMark        point = 0
	pointFact        point = 512
	pointCode        point = pointFact + 32 // of transfers
	pointOutcome     point = pointCode + 32 // of commands: what, and how it ended
	pointEffect      point = pointOutcome + 16*32
	pointFault       point = pointEffect + 2*32
	pointConjunction point = pointFault + 256
	pointStep        point = pointConjunction + 32                         // situations of a machine by the events given
	pointBoth        point = pointStep + point(rank.Situations)*eventKinds // effects of nodes that send and receive
	pointJudged      point = pointBoth + 32                                // checks that judged, and that were void
	pointVoid        point = pointJudged + oracle.ChecksMax
	pointForeign     point = pointVoid + oracle.ChecksMax // messages that foreign encoders write
	points           point = pointForeign + point(scribes)*tagsMax
)

func newCoverage() Coverage { return Coverage{make([]uint64, points)} }

func (c *Coverage) hit(p point) { c.counts[p]++ }

func (r *Result) fault(f plan.Fault) {
	r.faults[f]++
	r.Coverage.hit(pointFault + point(f))
}
func (r *Result) mark(m effects.Mark)                 { r.Coverage.hit(pointMark + point(m)) }
func (r *Result) fact(f effects.Fact)                 { r.Coverage.hit(pointFact + point(f)) }
func (r *Result) code(c effects.Code)                 { r.Coverage.hit(pointCode + point(c)) }
func (r *Result) outcome(x plan.Want, c effects.Code) { r.Coverage.hit(outcomePoint(x, c)) }
func (r *Result) effect(n *node, k plan.EffectKind) {
	if n.own == nil {
		r.Coverage.hit(effectPoint(n.facets, k))
	}
}

// eventKinds is room for the events, each command counting as one of its own.
const eventKinds = 32

// count counts a step that n's machine is about to make.
func (w *world) count(n *node, k kind, ev effects.Event) {
	if n.own != nil {
		return
	}
	x := plan.Want(0)
	if c, ok := ev.(*effects.Command); ok {
		x = w.commands[c.Ticket-1].want
	}
	w.result.Coverage.hit(stepPoint(n.situation(w.clock(n), ev), k, x))
}

func stepPoint(s rank.Situation, k kind, x plan.Want) point {
	return pointStep + point(s)*eventKinds + stepEvent(k, x)
}

func stepEvent(k kind, x plan.Want) point {
	if k == kindCommand {
		return point(kindDropped) + point(x)
	}
	return point(k)
}

func outcomePoint(x plan.Want, c effects.Code) point { return pointOutcome + point(x)*32 + point(c) }

func effectPoint(f facets, k plan.EffectKind) point {
	return [facetsEnd]point{facetReceives: pointEffect, facetSends: pointEffect + 32,
		facetSends | facetReceives: pointBoth}[f] + point(k)
}

// pointNames are the names of all points, empty where there is none.
var pointNames = sync.OnceValue(func() []string {
	names := make([]string, points)
	for _, m := range rank.MarkNames() {
		p := pointMark + point(m.Mark)
		if p >= pointFact || names[p] != "" {
			panic(fmt.Sprintf("BUG: mark %s is %d, which is counted as %q already; give its room numbers of its own below %d",
				m.Name, m.Mark, names[p], pointFact))
		}
		names[p] = "mark " + m.Name
	}
	for f := effects.FactLinkUp; int(f) < effects.FactCount; f++ {
		names[pointFact+point(f)] = "fact " + f.String()
	}
	for c := range effects.Code(effects.CodeCount) {
		names[pointCode+point(c)] = "transfer " + c.String()
		for x := plan.WantReserve; int(x) < plan.Wants; x++ {
			names[outcomePoint(x, c)] = "outcome " + x.String() + " " + c.String()
		}
	}
	for k := plan.EffectAny + 1; k < plan.EffectKinds; k++ {
		for f := facetSends; f < facetsEnd; f++ {
			names[effectPoint(f, k)] = "effect " + f.String() + " " + plan.MomentNames[k]
		}
	}
	for _, f := range plan.Faults() {
		names[pointFault+point(f)] = "fault " + f.String()
	}
	for _, c := range Conjunctions() {
		names[pointConjunction+point(c)] = "conjunction " + c.String()
	}
	for _, c := range oracle.Checks() {
		names[pointJudged+point(c)] = "judged " + c.String()
		names[pointVoid+point(c)] = "void " + c.String()
	}
	for t := protocol.Tag(1); protocol.NewMessage(t) != nil; t++ {
		for s := range scribes {
			names[foreignPoint(s, t)] = "foreign " + scribeNames[s] + " " + t.String()
		}
	}
	for s, situation := range rank.SituationNames() {
		for k := kindTick; k <= kindDropped; k++ {
			if k != kindCommand {
				names[stepPoint(rank.Situation(s), k, 0)] = "step " + situation + " × " + forms[k].name
			}
		}
		for x := plan.WantReserve; int(x) < plan.Wants; x++ {
			names[stepPoint(rank.Situation(s), kindCommand, x)] = "step " + situation + " × " + x.String()
		}
	}
	return names
})

// Points are the names of everything that is counted, whether it can happen or not.
func Points() []string {
	return slices.DeleteFunc(slices.Clone(pointNames()), func(name string) bool { return name == "" })
}

// Merge adds the counts of o.
func (c *Coverage) Merge(o *Coverage) {
	if o.counts == nil {
		return
	}
	if c.counts == nil {
		*c = newCoverage()
	}
	for p, n := range o.counts {
		c.counts[p] += n
	}
}

// Counts are the paths of a section that were taken, by name without the section's.
// An empty section means all of them, with their full names.
func (c *Coverage) Counts(section string) map[string]uint64 {
	all := map[string]uint64{}
	for p, n := range c.counts {
		name := pointNames()[p]
		if section != "" {
			rest, ok := strings.CutPrefix(name, section+" ")
			if !ok {
				continue
			}
			name = rest
		}
		if n > 0 {
			all[name] = n
		}
	}
	return all
}

// MarshalJSON writes the counts by name.
func (c Coverage) MarshalJSON() ([]byte, error) { return json.Marshal(c.Counts("")) }

// UnmarshalJSON reads them. A name that this program does not count comes from another
// version, whose counts mean other things.
func (c *Coverage) UnmarshalJSON(text []byte) error {
	var counts map[string]uint64
	if err := json.Unmarshal(text, &counts); err != nil {
		return err
	}
	*c = newCoverage()
	for name, n := range counts {
		p := slices.Index(pointNames(), name)
		if p < 0 || name == "" {
			return fmt.Errorf("coverage %q is unknown: merge results of one version of the program only", name)
		}
		c.counts[p] = n
	}
	return nil
}
