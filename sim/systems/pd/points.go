package pd

import (
	"fmt"
	"sync"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// eventKinds is the space for kinds of events. Each kind of command counts as a kind of event.
const eventKinds = 56

// verifiedColumn counts [world.KindVerified], whose number is above those of the other events, as the last kind.
const verifiedColumn = eventKinds - 1

// does not compile if eventKinds is too small, because an unsigned constant cannot be negative
const _ = verifiedColumn - uint(world.KindDropped) - plan.CommandKindLimit

// tagsMax is the space for kinds of messages.
const tagsMax = 32

// The coverage sections of ranks, their engines and the checks.
var (
	pointMark    = coverage.NewSection(marksMax, markName)
	pointOutcome = coverage.NewSection(plan.CommandKindLimit*effects.CodeCount, func(i int) string {
		x, c := plan.CommandKind(i/effects.CodeCount), effects.Code(i%effects.CodeCount)
		if !x.IsNamed() {
			return ""
		}
		return "outcome " + x.String() + " " + c.String()
	})
	pointConjunction = coverage.NewSection(int(conjunctionCount),
		func(i int) string { return "conjunction " + Conjunction(i).String() })
	// pointStep counts the situations of a machine by the event that arrives.
	pointStep = coverage.NewSection(len(rank.SituationNames())*eventKinds, stepName)
	// counts the messages that foreign encoders write
	pointForeign = coverage.NewSection(int(authorKinds)*tagsMax, func(i int) string {
		if t := protocol.Tag(i % tagsMax); t != protocol.TagNone && t.Family() == protocol.FamilyPD {
			return "foreign " + authorNames[i/tagsMax] + " " + t.String()
		}
		return ""
	})
)

// marksMax is the space for marks of machines.
const marksMax = 24 * effects.MarksPerSet

// markNames returns the names of the marks by number. The numbers of the marks are distinct.
var markNames = sync.OnceValue(func() (names [marksMax]string) {
	for _, m := range rank.MarkNames() {
		if int(m.Mark) >= marksMax || names[m.Mark] != "" {
			panic(fmt.Sprintf("BUG: mark %s has number %d, which is already used by %q; give the package of the mark separate numbers below %d",
				m.Name, m.Mark, names[min(int(m.Mark), marksMax-1)], marksMax))
		}
		names[m.Mark] = "mark " + m.Name
	}
	return names
})

// markName returns the name of mark i, and "" if there is no such mark.
func markName(i int) string { return markNames()[i] }

// situationNames returns the names of the situations of a machine.
var situationNames = sync.OnceValue(rank.SituationNames)

// stepName returns the name of point i of the section of steps, and "" if there is no such point.
func stepName(i int) string {
	situation, event := situationNames()[i/eventKinds], i%eventKinds
	switch k, x := world.Kind(event), event-int(world.KindDropped); {
	case event == verifiedColumn:
		return "step " + situation + " × " + world.LineForms[world.KindVerified].Name
	case k >= world.KindTick && k <= world.KindDropped && k != world.KindCommand:
		return "step " + situation + " × " + world.LineForms[k].Name
	case x > 0 && plan.CommandKind(x).IsNamed():
		return "step " + situation + " × " + plan.CommandKind(x).String()
	}
	return ""
}

// CountStep counts the step that n's machine is about to take.
func (w *Cluster) CountStep(n *world.Node, k world.Kind, ev effects.Event) {
	x := plan.CommandKind(0)
	if c, ok := ev.(*effects.Command); ok {
		x = w.Commands[c.Ticket-1].Kind
	}
	at := coverage.Point(k)
	switch k {
	case world.KindCommand:
		at = coverage.Point(world.KindDropped) + coverage.Point(x)
	case world.KindVerified:
		at = verifiedColumn
	}
	w.Result.Coverage.Hit(pointStep + coverage.Point(situationOf(n, w.ReadClock(n), ev))*eventKinds + at)
}

// countOutcome counts the outcome of a command of the kind x.
func countOutcome(r *world.Result, x plan.CommandKind, c effects.Code) {
	r.Coverage.Hit(pointOutcome + coverage.Point(x)*effects.CodeCount + coverage.Point(c))
}
