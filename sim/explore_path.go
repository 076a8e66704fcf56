package sim

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A Path is the way to a situation: at each step the position of the choice among those
// that there were. It means the same as long as scope and code stay the same.
type Path []int

// A Violation is a broken promise and the way to it.
type Violation struct {
	Scope    string   `json:"scope"`
	Property string   `json:"property"` // its number in docs/safety.md; "contract" and "panic" besides
	Promise  string   `json:"promise"`  // what it says
	Story    string   `json:"story"`    // what happened, in a sentence
	Path     Path     `json:"path"`
	System   string   `json:"system,omitempty"` // whose scope it is, if not PD's
	Events   []string `json:"events"`           // every choice, and the event log between them
}

// Retrace is the one command that shows it again.
func (v *Violation) Retrace() string {
	if v.System != "" {
		return fmt.Sprintf("sim.Retrace, of scope %s of system %s, with the path %s", v.Scope, v.System, v.Path)
	}
	return fmt.Sprintf("kvferry sim explore --scope %s --path %s", v.Scope, v.Path)
}

// String tells the whole story.
func (v *Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s broken after %d choices: %s\n", v.Property, len(v.Path), v.Story)
	if v.Promise != "" {
		fmt.Fprintf(&b, "promised: %s\n", v.Promise)
	}
	for _, line := range v.Events {
		b.WriteString("  ")
		b.WriteString(line)
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "again with: %s\n", v.Retrace())
	return b.String()
}

// String is the path as ParsePath takes it.
func (p Path) String() string {
	parts := make([]string, len(p))
	for i, n := range p {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ".")
}

// ParsePath reads what String wrote.
func ParsePath(text string) (Path, error) {
	if text == "" {
		return nil, nil
	}
	var p Path
	for i, part := range strings.Split(text, ".") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("path: step %d is %q: give the numbers as printed, with dots between", i+1, part)
		}
		p = append(p, n)
	}
	return p, nil
}

// Retrace goes a path once more and tells each line of the event log, its choices in
// between, to log; nil: nobody. Where nothing more can happen at its end, it lets the
// world come to rest. It returns the promise that broke, or nil.
func Retrace(s Scope, p Path, log func(string)) (*Violation, error) {
	b, err := s.begin()
	if err != nil {
		return nil, err
	}
	var story []string
	tell := func(line string) {
		story = append(story, line)
		if log != nil {
			log(line)
		}
	}
	b.w.Journal.Sink = tell
	x := &explorer{o: ExploreOptions{Scope: s}}
	for i, n := range p {
		all := b.choices(&s, nil)
		if n >= len(all) {
			return nil, fmt.Errorf("path: step %d is %d of %d choices: it was written for another scope or commit", i+1, n, len(all))
		}
		tell(fmt.Sprintf("%4d. %s", i+1, b.describe(all[n])))
		if !x.try(b, all[n]) {
			return nil, fmt.Errorf("path: step %d is a fault that has no occasion there: it was written for another scope or commit", i+1)
		}
		if b.w.Failure != nil {
			break
		}
	}
	if b.w.Failure == nil {
		if all := b.choices(&s, nil); len(all) == 0 || all[0].fault() {
			tell("      nothing more can happen; at rest:")
			b.rest()
		}
	}
	if f := b.w.Failure; f != nil {
		return &Violation{Scope: s.Name, System: b.w.Source.System, Property: f.Property, Promise: f.Promise, Story: f.Story,
			Path: p, Events: story}, nil
	}
	return nil, nil
}

// what names a delivery: its kind, and what it is about.
func what(d *world.Delivery) string {
	f := world.Forms[d.Kind]
	text := f.Name
	for _, part := range [...]struct {
		name  string
		value uint64
	}{{f.A, d.A}, {f.B, d.B}, {f.C, d.C}} {
		switch part.name {
		case "conn", "job", "batch", "ticket", "transfer", "landing", "pair", "half", "link":
			text += fmt.Sprintf(" %s=%d", part.name, part.value)
		case "want":
			text += " " + plan.Want(part.value).String()
		case "code":
			text += " " + effects.Code(part.value).String()
		default: // What numbers mean to drivers alone tells nobody anything.
		}
	}
	return text
}

// describe says what a choice is.
func (b *branch) describe(c choice) string {
	w := b.w
	under := func() string {
		for _, q := range w.Queue.Heap {
			if q.Seq == c.seq {
				d := &w.Queue.Slab[q.Slot]
				return what(d)
			}
		}
		return "tick"
	}
	node := fmt.Sprintf("n%d", c.node)
	switch c.move {
	case moveDeliver:
		late := ""
		if c.nth > 0 {
			late = ", that was in the mailbox already"
		}
		if c.node < 0 {
			return under() + late
		}
		return node + ": " + under() + late
	case moveTick:
		t, _ := w.Nodes[c.node].Machine.Deadline()
		return fmt.Sprintf("%s: a deadline passes, %d ms later", node,
			(w.Nodes[c.node].When(t)-w.Now)/int64(effects.Millisecond))
	case moveWait:
		return fmt.Sprintf("%d ms pass", unit/effects.Millisecond)
	case moveThaw:
		return node + " goes on"
	case moveStrike:
		return fmt.Sprintf("%s: %s, and a fault strikes: %s", node, under(), plan.Fault(c.nth))
	case moveCrash:
		return node + " crashes"
	case moveCrashIn:
		return fmt.Sprintf("%s: %s, and it crashes after effect %d", node, under(), c.nth)
	case moveDrain:
		return node + " is told to drain"
	case moveAbort:
		return fmt.Sprintf("%s: its engine aborts ticket %d (%s)", node, c.nth, w.Commands[c.nth-1].Want)
	case moveCutConn:
		return fmt.Sprintf("connection %d breaks", c.nth)
	case moveCutLink:
		return fmt.Sprintf("link %d breaks", c.nth)
	case moveStall:
		return node + " stalls"
	}
	return "nothing"
}
