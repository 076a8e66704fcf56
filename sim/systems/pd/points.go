package pd

import (
	"fmt"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// eventKinds is the space for kinds of events. Each kind of command counts as a kind of event.
const eventKinds = 56

// does not compile if eventKinds is too small, because an unsigned constant cannot be negative
const _ = eventKinds - uint(world.KindDropped) - plan.Wants

// tagsMax is the space for kinds of messages.
const tagsMax = 32

// The coverage sections of ranks, their engines and the checks.
var (
	pointMark    = coverage.Section(marksMax, markName)
	pointOutcome = coverage.Section(plan.Wants*effects.CodeCount, func(i int) string {
		x, c := plan.Want(i/effects.CodeCount), effects.Code(i%effects.CodeCount)
		if !x.Named() {
			return ""
		}
		return "outcome " + x.String() + " " + c.String()
	})
	pointConjunction = coverage.Section(int(conjunctions),
		func(i int) string { return "conjunction " + Conjunction(i).String() })
	// pointStep counts the situations of a machine by the event that arrives.
	pointStep   = coverage.Section(len(rank.SituationNames())*eventKinds, stepName)
	PointJudged = coverage.Section(oracle.ChecksMax, func(i int) string { return checkName("judged ", i) })
	PointVoid   = coverage.Section(oracle.ChecksMax, func(i int) string { return checkName("void ", i) })
	// counts the messages that foreign encoders write
	pointForeign = coverage.Section(int(scribes)*tagsMax, func(i int) string {
		if t := protocol.Tag(i % tagsMax); t != protocol.TagNone && t.Family() == protocol.FamilyPD {
			return "foreign " + scribeNames[i/tagsMax] + " " + t.String()
		}
		return ""
	})
)

// marksMax is the space for marks of machines.
const marksMax = 24 * effects.MarksPerSet

// marks returns the names of the marks by number. The numbers of the marks are distinct.
var marks = sync.OnceValue(func() (names [marksMax]string) {
	for _, m := range rank.MarkNames() {
		if int(m.Mark) >= marksMax || names[m.Mark] != "" {
			panic(fmt.Sprintf("BUG: mark %s is %d, which is counted as %q already; give its room numbers of its own below %d",
				m.Name, m.Mark, names[min(int(m.Mark), marksMax-1)], marksMax))
		}
		names[m.Mark] = "mark " + m.Name
	}
	return names
})

// markName returns the name of mark i, and "" if there is no such mark.
func markName(i int) string { return marks()[i] }

// checkName returns the name of check i after the given word, and "" if there is no such check.
func checkName(word string, i int) string {
	if all := oracle.Checks(); i < len(all) {
		return word + all[i].String()
	}
	return ""
}

// situations returns the names of the situations of a machine.
var situations = sync.OnceValue(rank.SituationNames)

// stepName returns the name of point i of the section of steps, and "" if there is no such point.
func stepName(i int) string {
	situation, event := situations()[i/eventKinds], i%eventKinds
	switch k, x := world.Kind(event), event-int(world.KindDropped); {
	case k >= world.KindTick && k <= world.KindDropped && k != world.KindCommand:
		return "step " + situation + " × " + world.Forms[k].Name
	case x > 0 && plan.Want(x).Named():
		return "step " + situation + " × " + plan.Want(x).String()
	}
	return ""
}

// Count counts the step that n's machine is about to take.
func (w *Cluster) Count(n *world.Node, k world.Kind, ev effects.Event) {
	x := plan.Want(0)
	if c, ok := ev.(*effects.Command); ok {
		x = w.Commands[c.Ticket-1].Want
	}
	at := coverage.Point(k)
	if k == world.KindCommand {
		at = coverage.Point(world.KindDropped) + coverage.Point(x)
	}
	w.Result.Coverage.Hit(pointStep + coverage.Point(situationOf(n, w.Clock(n), ev))*eventKinds + at)
}

// outcome counts the outcome of a command of the kind x.
func outcome(r *world.Result, x plan.Want, c effects.Code) {
	r.Coverage.Hit(pointOutcome + coverage.Point(x)*effects.CodeCount + coverage.Point(c))
}

// Judged counts judgements of a flow's checks that happen outside the events which the flow's oracles receive.
func Judged(w *Cluster, checks ...oracle.Check) {
	for _, c := range checks {
		w.Result.Coverage.Hit(PointJudged + coverage.Point(c))
	}
}
