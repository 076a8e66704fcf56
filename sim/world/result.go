package world

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/coverage"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/trace"
)

// Failure describes one broken promise: the promise, how it was broken, and the events before that.
type Failure struct {
	Seed     uint64   `json:"seed"`
	Profile  string   `json:"profile"`
	System   string   `json:"system,omitempty"` // the system that ran, if not PD
	Plan     string   `json:"plan,omitempty"`   // the file from which the plan was read, or to which it was written
	Property string   `json:"property"`         // its number in docs/safety.md, or "contract" or "panic"
	Promise  string   `json:"promise"`          // the sentence that states the property
	Story    string   `json:"story"`            // what happened, in one sentence
	At       int64    `json:"at_ns"`            // simulated time
	Events   []string `json:"events"`           // the last lines of the event log

	// Concerns and Steps are set only by a run that recorded itself, such as that of [Explain]. Concerns lists the
	// pages, grants, transfers, commands, requests and keys that the story names or refers to. Steps lists the last
	// lines that touched the things in Concerns.
	Concerns []string `json:"concerns,omitempty"`
	Steps    []string `json:"steps,omitempty"`
	// Page is the HTML file that shows the run, if the caller wrote a page.
	Page string `json:"page,omitempty"`
	// ReplayOverride is the command that repeats the failure, if the command is not kvferry.
	ReplayOverride string `json:"again,omitempty"`
}

// ReplayCommand returns the command that repeats the failure.
func (f *Failure) ReplayCommand() string {
	if f.ReplayOverride != "" {
		return f.ReplayOverride
	}
	if f.System != "" {
		return fmt.Sprintf("seed %d of system %s, or its plan, in the options of sim.Run", f.Seed, f.System)
	}
	if f.Plan != "" {
		return "kvferry sim replay --plan " + f.Plan
	}
	if f.Profile == "" {
		return fmt.Sprintf("seed %d of a plan that was not written to a file", f.Seed)
	}
	return fmt.Sprintf("kvferry sim replay --seed %d --profile %s", f.Seed, f.Profile)
}

// String returns the complete description of the failure.
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
			title = "the last steps that concerned them"
		}
		writeLines(&b, title, f.Steps)
		lines = lines[max(0, len(lines)-eventsWithSteps):]
	}
	writeLines(&b, "the last lines of the event log", lines)
	if f.Page != "" {
		fmt.Fprintf(&b, "page: %s\n", f.Page)
	}
	fmt.Fprintf(&b, "repeat with: %s\n", f.ReplayCommand())
	return b.String()
}

// eventsWithSteps is the number of log lines that are useful in addition to the steps.
const eventsWithSteps = 12

// writeLines writes a title and indented lines.
func writeLines(b *strings.Builder, title string, lines []string) {
	fmt.Fprintf(b, "%s:\n", title)
	for _, line := range lines {
		b.WriteString("  ")
		b.WriteString(line)
		b.WriteByte('\n')
	}
}

// Result is the outcome and the statistics of a run.
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
	Faults    map[string]uint64 // number of strikes, by the name of the fault; set at the end
	Coverage  coverage.Coverage
	Failure   *Failure     // nil: every promise was kept
	Trace     *trace.Trace // nil unless Options.Record

	Strikes      []plan.Strike // in order, if Options.Strikes was set
	UnusedFaults []string      // strikes and faults of the plan that found no occasion

	FaultCounts [plan.FaultCount]uint64 // the same as Faults, by number, while the run goes on
}

func newResult(p *plan.Plan, counts coverage.Coverage) Result {
	return Result{Seed: p.Seed, Profile: p.Profile, Coverage: counts.Recycle()}
}

// NameFaults sets Faults from the counts by number.
func (r *Result) NameFaults() {
	r.Faults = map[string]uint64{}
	for f, n := range r.FaultCounts {
		if n > 0 {
			r.Faults[plan.Fault(f).String()] = n
		}
	}
}
