package world

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/trace"
)

// Failure is one broken promise: which, how, and the story up to it.
type Failure struct {
	Seed     uint64   `json:"seed"`
	Profile  string   `json:"profile"`
	System   string   `json:"system,omitempty"` // that ran, if not PD
	Plan     string   `json:"plan,omitempty"`   // the file that its plan was read from, or written into
	Property string   `json:"property"`         // its number in docs/safety.md; "contract" and "panic" besides
	Promise  string   `json:"promise"`          // what it says
	Story    string   `json:"story"`            // what happened, in a sentence
	At       int64    `json:"at_ns"`            // simulated
	Events   []string `json:"events"`           // the last lines of the event log

	// Known only to a run that recorded itself, such as [Explain] makes: the pages, grants, transfers,
	// commands, requests and keys that the story names or stands for, and the last lines that touched them.
	Concerns []string `json:"concerns,omitempty"`
	Steps    []string `json:"steps,omitempty"`
	// Page is the HTML file that shows the run, where one was written.
	Page string `json:"page,omitempty"`
	// Again, if not empty, is the command that shows it again, where that is not kvferry.
	Again string `json:"again,omitempty"`
}

// Replay is the one command that shows it again.
func (f *Failure) Replay() string {
	if f.Again != "" {
		return f.Again
	}
	if f.System != "" {
		return fmt.Sprintf("seed %d of system %s, or its plan, in the options of sim.Run", f.Seed, f.System)
	}
	if f.Plan != "" {
		return "kvferry sim replay --plan " + f.Plan
	}
	if f.Profile == "" {
		return fmt.Sprintf("seed %d of a plan that is in no file", f.Seed)
	}
	return fmt.Sprintf("kvferry sim replay --seed %d --profile %s", f.Seed, f.Profile)
}

// String tells the whole story.
func (f *Failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s broken: %s\n", f.Property, f.Story)
	if f.Promise != "" {
		fmt.Fprintf(&b, "promised: %s\n", f.Promise)
	}
	lines := f.Events
	if len(f.Steps) > 0 {
		title := "the last steps"
		if len(f.Concerns) > 0 {
			fmt.Fprintf(&b, "concerns: %s\n", strings.Join(f.Concerns, ", "))
			title = "the last steps that touched them"
		}
		tell(&b, title, f.Steps)
		lines = lines[max(0, len(lines)-eventsBeside):]
	}
	tell(&b, "the last lines of the event log", lines)
	if f.Page != "" {
		fmt.Fprintf(&b, "look at it: %s\n", f.Page)
	}
	fmt.Fprintf(&b, "again with: %s\n", f.Replay())
	return b.String()
}

// eventsBeside is how much of the plain log is still of use beside the steps.
const eventsBeside = 12

func tell(b *strings.Builder, title string, lines []string) {
	fmt.Fprintf(b, "%s:\n", title)
	for _, line := range lines {
		b.WriteString("  ")
		b.WriteString(line)
		b.WriteByte('\n')
	}
}

// Result is what one run did.
type Result struct {
	Seed      uint64
	Profile   string
	Hash      uint64 // over the whole event log
	Steps     uint64 // of all machines
	Simulated effects.Duration
	Events    uint64 // lines of the event log
	Messages  uint64
	Transfers uint64
	Grants    uint64
	Commands  uint64
	Chunks    uint64            // delivered to readers and verified
	Faults    map[string]uint64 // those that struck, by name; set at the end
	Coverage  coverage.Coverage
	Failure   *Failure     // nil: every promise held
	Trace     *trace.Trace // nil unless Options.Record

	Strikes []plan.Strike // in order, if Options.Strikes was set
	Unused  []string      // strikes and faults of the plan for which there was no occasion

	Counted [plan.FaultKinds]uint64 // Faults by number, while it runs
}

func newResult(p *plan.Plan, counts coverage.Coverage) Result {
	return Result{Seed: p.Seed, Profile: p.Profile, Coverage: counts.Emptied()}
}

// NameFaults makes Faults of what was counted by number.
func (r *Result) NameFaults() {
	r.Faults = map[string]uint64{}
	for f, n := range r.Counted {
		if n > 0 {
			r.Faults[plan.Fault(f).String()] = n
		}
	}
}
