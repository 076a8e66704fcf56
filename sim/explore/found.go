package explore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kvferry/kvferry/sim/coverage"
)

// Options say what to explore and how far.
type Options struct {
	Scope  Scope
	Depth  int // the longest path; 0 is no bound
	States int // the most situations; 0 is StatesMax
	// Progress, if not nil, is called now and then. If it returns false, that is enough.
	Progress func(*Exploration) bool
}

// StatesMax bounds an exploration that names no bound: each situation costs about 20
// bytes of memory.
const StatesMax = 50_000_000

// An Exploration is what was found.
type Exploration struct {
	Scope       string
	States      int // different situations
	Transitions int // choices made
	Ends        int // situations in which nothing can happen any more
	Depth       int // of the longest path
	Complete    bool
	Cut         string // why it is not complete
	Took        time.Duration
	Coverage    coverage.Coverage
	Violation   *Violation // the first broken promise
}

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
