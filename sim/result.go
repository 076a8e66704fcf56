package sim

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/effects"
)

// Failure is one broken promise: which, how, and the story up to it.
type Failure struct {
	Seed     uint64   `json:"seed"`
	Profile  string   `json:"profile"`
	Property string   `json:"property"` // its number in docs/safety.md; "contract" and "panic" besides
	Story    string   `json:"story"`    // what happened, in a sentence
	At       int64    `json:"at_ns"`    // simulated
	Events   []string `json:"events"`   // the last lines of the event log
}

// Replay is the one command that shows it again.
func (f *Failure) Replay() string {
	return fmt.Sprintf("kvferry sim replay --seed %d --profile %s", f.Seed, f.Profile)
}

// String tells the whole story.
func (f *Failure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s broken: %s\n", f.Property, f.Story)
	for _, line := range f.Events {
		b.WriteString("  ")
		b.WriteString(line)
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "again with: %s\n", f.Replay())
	return b.String()
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
	Chunks    uint64 // delivered to readers and verified
	Faults    map[string]uint64
	Coverage  Coverage
	Failure   *Failure // nil: every promise held
}

// Coverage counts the odd paths that were taken.
type Coverage struct {
	Marks    map[effects.Mark]uint64
	Facts    map[effects.Fact]uint64
	Codes    map[effects.Code]uint64 // of transfers
	Outcomes map[string]uint64       // of commands: what, and how it ended
}

func newResult(seed uint64) Result {
	return Result{Seed: seed, Faults: map[string]uint64{}, Coverage: newCoverage()}
}

func newCoverage() Coverage {
	return Coverage{Marks: map[effects.Mark]uint64{}, Facts: map[effects.Fact]uint64{},
		Codes: map[effects.Code]uint64{}, Outcomes: map[string]uint64{}}
}

func (r *Result) fault(f Fault)       { r.Faults[f.String()]++ }
func (r *Result) mark(m effects.Mark) { r.Coverage.Marks[m]++ }
func (r *Result) fact(f effects.Fact) { r.Coverage.Facts[f]++ }
func (r *Result) code(c effects.Code) { r.Coverage.Codes[c]++ }
func (r *Result) outcome(x want, c effects.Code) {
	r.Coverage.Outcomes[x.String()+" "+c.String()]++
}
