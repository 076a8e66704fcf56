package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim"
)

type takeCommand struct{ leaks bool } // The command of a leakyMachine.

func (*takeCommand) IsCommand() {}

// A leakyMachine has a row for each command until the command times out. The row of a command with leaks set is never
// removed.
type leakyMachine struct{ rows []leakyRow }

type leakyRow struct {
	ticket  effects.Ticket
	until   effects.Time
	leaks   bool
	settled bool
}

func (k *leakyMachine) VisitTables(visit func(name string, n, most int)) {
	visit("rows", len(k.rows), 1<<10)
}

func (k *leakyMachine) Deadline() (at effects.Time, ok bool) {
	for _, r := range k.rows {
		if !r.settled && (!ok || r.until < at) {
			at, ok = r.until, true
		}
	}
	return at, ok
}

func (k *leakyMachine) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	if c, is := ev.(*effects.Command); is {
		k.rows = append(k.rows, leakyRow{ticket: c.Ticket, until: now.Add(5 * effects.Millisecond), leaks: c.Body.(*takeCommand).leaks})
	}
	for i := 0; i < len(k.rows); i++ {
		r := &k.rows[i]
		if r.settled || r.until > now {
			continue
		}
		out.Deliver(effects.Deliver{Ticket: r.ticket, Code: effects.OK})
		if r.settled = true; !r.leaks {
			k.rows = slices.Delete(k.rows, i, i+1)
			i--
		}
	}
}

// If a run fails at its end because something is left, the story shows the step that created the leftover. The story
// omits earlier and later rows that were removed, and the last steps of the run.
func TestWhatIsLeftTellsWhereItCameToBe(t *testing.T) {
	const commands, leak = 40, 17
	system := sim.System{Name: "keeper",
		Commands: map[string]func(sim.Item) effects.CommandBody{
			"take": func(x sim.Item) effects.CommandBody { return &takeCommand{leaks: x.Number == leak} },
		},
		Draw: func(_ sim.Draws, p *sim.Plan) {
			p.Faults, p.Items = nil, nil
			for i := range uint32(commands) { // Several rows exist at the same time.
				p.Items = append(p.Items, sim.Item{At: time.Duration(1+2*i) * time.Millisecond, Do: "take", Number: i})
			}
		},
		Processes: func(*sim.Plan) []sim.Process {
			return []sim.Process{{Name: "keeper", New: func(sim.Boot) (effects.Machine, error) { return &leakyMachine{}, nil }}}
		},
	}
	r, err := sim.Run(sim.Options{Seed: 1, System: &system, RecordTrace: true})
	if err != nil || r.Failure == nil || r.Failure.Property != "S17" {
		t.Fatalf("error %v, failure %v", err, r.Failure)
	}
	lost := fmt.Sprintf("ticket %d", leak+1)
	if !slices.Equal(r.Failure.Concerns, []string{lost}) {
		t.Errorf("it concerns %q, want %s", r.Failure.Concerns, lost)
	}
	told := strings.Join(r.Failure.Steps, "\n")
	if n := strings.Count(told, fmt.Sprintf("ticket=%d ", leak+1)); n != 2 || strings.Count(told, "ticket=") != n {
		t.Errorf("the story has not the command and its outcome alone:\n%s", told)
	}
	if text := r.Failure.String(); !strings.Contains(text, "1 entries left in its table rows") ||
		!strings.Contains(text, "the last steps that concerned them") {
		t.Errorf("the text does not tell it:\n%s", text)
	}
}
