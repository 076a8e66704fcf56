package explore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kvferry/kvferry/sim/coverage"
)

// Options selects what to explore and how far.
type Options struct {
	Scope  Scope
	Depth  int // length of the longest path; 0: no limit
	States int // maximum number of states; 0: [StatesMax]
	// Progress, if not nil, is called from time to time. The exploration ends if Progress returns false.
	Progress func(*Exploration) bool
}

// StatesMax is the limit of an exploration that sets no limit. Each state needs about 20 bytes of memory.
const StatesMax = 50_000_000

// An Exploration is the result of [Explore].
type Exploration struct {
	Scope       string
	States      int // number of different states
	Transitions int // number of choices made
	FinalStates int // number of states in which nothing can happen any more
	Depth       int // length of the longest path
	Complete    bool
	CutReason   string // why the exploration is not complete
	Elapsed     time.Duration
	Coverage    coverage.Coverage
	Violation   *Violation // a broken promise; the shortest path found may break another promise than the first path
}

// A Path leads to a state. It holds, for each step, the position of the choice in the list of choices. A path keeps
// its meaning as long as scope and code stay the same.
type Path []int

// A Violation is a broken promise and the path to it.
type Violation struct {
	Scope    string   `json:"scope"`
	Property string   `json:"property"` // its number in docs/safety.md, or "contract" or "panic"
	Promise  string   `json:"promise"`  // the sentence that states the property
	Story    string   `json:"story"`    // what happened, in one sentence
	Path     Path     `json:"path"`
	System   string   `json:"system,omitempty"` // the system of the scope, if not PD
	Events   []string `json:"events"`           // every choice, and the event log between them
}

// RetraceCommand returns the command that repeats the violation.
func (v *Violation) RetraceCommand() string {
	if v.System != "" {
		return fmt.Sprintf("sim.RetracePath, of scope %s of system %s, with the path %s", v.Scope, v.System, v.Path)
	}
	return fmt.Sprintf("kvferry sim explore --scope %s --path %s", v.Scope, v.Path)
}

// String returns the complete description of the violation.
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
	fmt.Fprintf(&b, "repeat with: %s\n", v.RetraceCommand())
	return b.String()
}

// String returns the path in the form that ParsePath parses.
func (p Path) String() string {
	parts := make([]string, len(p))
	for i, n := range p {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ".")
}

// ParsePath parses the output of String.
func ParsePath(text string) (Path, error) {
	if text == "" {
		return nil, nil
	}
	var p Path
	for i, part := range strings.Split(text, ".") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("path: step %d is %q: write the numbers as printed, separated by dots", i+1, part)
		}
		p = append(p, n)
	}
	return p, nil
}
