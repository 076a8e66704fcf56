package explore

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// RetracePath repeats a path. It passes each line of the event log to log, with the choices between them; log may be
// nil. If nothing more can happen at the end of the path, the world is then brought to rest. The result is the broken
// promise or nil. The error is not nil if the path does not fit the scope.
func RetracePath(s Scope, p Path, log func(string)) (*Violation, error) {
	b, err := s.newState()
	if err != nil {
		return nil, err
	}
	var lines []string
	addLine := func(line string) {
		lines = append(lines, line)
		if log != nil {
			log(line)
		}
	}
	b.w.Journal.Sink = addLine
	x := &explorer{options: Options{Scope: s}}
	for i, n := range p {
		all := b.listChoices(&s, nil)
		if n >= len(all) {
			return nil, fmt.Errorf("path: step %d is choice %d, but there are %d choices: the path was written for another scope or commit", i+1, n,
				len(all))
		}
		addLine(fmt.Sprintf("%4d. %s", i+1, b.describeChoice(all[n])))
		if !x.tryChoice(b, all[n]) {
			return nil, fmt.Errorf("path: step %d is a fault that cannot happen there: the path was written for another scope or "+
				"commit", i+1)
		}
		if b.w.Failure != nil {
			break
		}
	}
	if b.w.Failure == nil {
		if all := b.listChoices(&s, nil); len(all) == 0 || all[0].isFault() {
			addLine("      nothing more can happen; the world is brought to rest:")
			b.runToEnd()
		}
	}
	if f := b.w.Failure; f != nil {
		return &Violation{Scope: s.Name, System: b.w.SourcePlan.System, Property: f.Property, Promise: f.Promise, Story: f.Story,
			Path: p, Events: lines}, nil
	}
	return nil, nil
}

// describeDelivery describes a delivery by its kind and its subject.
func describeDelivery(d *world.Delivery) string {
	f := world.LineForms[d.Kind]
	text := f.Name
	for _, part := range [...]struct {
		name  string
		value uint64
	}{{f.A, d.A}, {f.B, d.B}, {f.C, d.C}} {
		switch part.name {
		case "conn", "job", "batch", "ticket", "transfer", "landing", "pair", "half", "link":
			text += fmt.Sprintf(" %s=%d", part.name, part.value)
		case "command":
			text += " " + plan.CommandKind(part.value).String()
		case "code":
			text += " " + effects.Code(part.value).String()
		default: // Numbers that only drivers understand tell a reader nothing.
		}
	}
	return text
}

// describeChoice returns a description of a choice.
func (b *state) describeChoice(c choice) string {
	w := b.w
	delivery := func() string {
		for _, q := range w.Queue.Heap {
			if q.Seq == c.seq {
				d := &w.Queue.Slab[q.Slot]
				return describeDelivery(d)
			}
		}
		return "tick"
	}
	node := fmt.Sprintf("n%d", c.node)
	switch c.move {
	case moveDeliver:
		late := ""
		if c.nth > 0 {
			late = ", which was already in the mailbox"
		}
		if c.node < 0 {
			return delivery() + late
		}
		return node + ": " + delivery() + late
	case moveTick:
		t, _ := w.Nodes[c.node].Machine.Deadline()
		return fmt.Sprintf("%s: a deadline passes, %d ms later", node,
			(w.Nodes[c.node].InstantOf(t)-w.Now)/int64(effects.Millisecond))
	case moveWait:
		return fmt.Sprintf("%d ms pass", Unit/effects.Millisecond)
	case moveThaw:
		return node + " resumes"
	case moveStrike:
		return fmt.Sprintf("%s: %s, and a fault strikes: %s", node, delivery(), plan.Fault(c.nth))
	case moveCrash:
		return node + " crashes"
	case moveCrashIn:
		return fmt.Sprintf("%s: %s, and the node crashes after effect %d", node, delivery(), c.nth)
	case moveDrain:
		return node + " is asked to drain"
	case moveAbort:
		return fmt.Sprintf("%s: its engine aborts ticket %d (%s)", node, c.nth, b.run.CommandKindName(effects.Ticket(c.nth)))
	case moveCutConn:
		return fmt.Sprintf("connection %d breaks", c.nth)
	case moveCutLink:
		return fmt.Sprintf("link %d breaks", c.nth)
	case moveSystemFault:
		return fmt.Sprintf("fault %d of the faults that the system offers", c.nth+1)
	case moveStall:
		return node + " stalls"
	}
	return "nothing"
}
