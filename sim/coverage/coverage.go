// Package coverage counts which odd paths runs took, by name. Who counts paths reserves a [Section] for them as the
// program starts, and names them; what is written, read and merged goes by the names alone.
//
// A caller may rely on this: a point of a section is that section's alone; merging is adding, in any order; and a file
// of another commit can be read, whatever it counts.
package coverage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Coverage counts which odd paths a run took, or a campaign. Each has a name that
// starts with its section: "mark sender/...", "fact ready", "transfer expired",
// "outcome put ok", "effect sender Grant", "fault crash", "conjunction frozen-over-restart";
// "judged S3 stores" and "void S3 stores" for what oracles had to say, and had not; and "step",
// with the state of what an event is about and the event: "step sender's put moving × Settled".
type Coverage struct{ counts []uint64 } // by point; nil is none

// A Point is the place of one path among the counts.
type Point int

// sections are those that were reserved, in order; all of them before anything is counted.
var (
	sections []section
	points   Point
)

type section struct {
	from Point
	n    int
	name func(i int) string
}

// Section reserves room for n paths and returns the place of the first. The i-th is called as name says; "" is none.
// It is for variables of packages: once those are there, nobody may reserve more. Name is called later.
func Section(n int, name func(i int) string) Point {
	from := points
	sections = append(sections, section{from, n, name})
	points += Point(n)
	return from
}

// New counts nothing yet.
func New() Coverage { return Coverage{make([]uint64, points)} }

// Emptied counts nothing yet, in the memory of c, which is not used any more.
func (c Coverage) Emptied() Coverage {
	if c.counts == nil {
		return New()
	}
	clear(c.counts)
	return c
}

// Hit counts a path.
func (c *Coverage) Hit(p Point) { c.counts[p]++ }

// names are those of all points, empty where there is none.
var names = sync.OnceValue(func() []string {
	all := make([]string, points)
	for _, s := range sections {
		for i := range s.n {
			all[int(s.from)+i] = s.name(i)
		}
	}
	return all
})

// Points are the names of everything that is counted, whether it can happen or not.
func Points() []string {
	return slices.DeleteFunc(slices.Clone(names()), func(name string) bool { return name == "" })
}

// Merge adds the counts of o.
func (c *Coverage) Merge(o *Coverage) {
	if o.counts == nil {
		return
	}
	if c.counts == nil {
		*c = New()
	}
	for p, n := range o.counts {
		c.counts[p] += n
	}
}

// Counts are the paths of a section that were taken, by name without the section's.
// An empty section means all of them, with their full names.
func (c *Coverage) Counts(section string) map[string]uint64 {
	all := map[string]uint64{}
	for p, n := range c.counts {
		name := names()[p]
		if section != "" {
			rest, ok := strings.CutPrefix(name, section+" ")
			if !ok {
				continue
			}
			name = rest
		}
		if n > 0 {
			all[name] = n
		}
	}
	return all
}

// MarshalJSON writes the counts by name.
func (c Coverage) MarshalJSON() ([]byte, error) { return json.Marshal(c.Counts("")) }

// UnmarshalJSON reads them. A name that this program does not count comes from another
// version, whose counts mean other things.
func (c *Coverage) UnmarshalJSON(text []byte) error {
	var counts map[string]uint64
	if err := json.Unmarshal(text, &counts); err != nil {
		return err
	}
	*c = New()
	for name, n := range counts {
		p := slices.Index(names(), name)
		if p < 0 || name == "" {
			return fmt.Errorf("coverage %q is unknown: merge results of one version of the program only", name)
		}
		c.counts[p] = n
	}
	return nil
}
