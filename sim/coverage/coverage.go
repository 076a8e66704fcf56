// Package coverage counts which unusual paths runs took, by the names of the paths. A package that counts paths
// reserves a [NewSection] for its paths when the program starts, and names the paths. Counts are written, read and
// merged by name only.
//
// A caller may rely on the following: a point belongs to one section only; merging is adding, in any order; and the
// counts do not depend on the order in which the sections were reserved.
//
// Example: package world reserves a section for the faults. The i-th path is named "fault " and the name of the
// fault:
//
//	var pointFault = coverage.NewSection(int(plan.FaultCount), func(i int) string { ... })
//
// When a node crashes, the world calls Hit(pointFault + coverage.Point(plan.FaultCrash)). The run's counts, written as
// JSON, then contain "fault crash": 1. A campaign merges the counts of all runs, and a name that is missing in the sum
// is a path that no run took.
package coverage

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Coverage counts the unusual paths that a run or a campaign took. The name of a path starts with its section: "mark
// sender/...", "fact ready", "transfer expired", "outcome put ok", "effect sender Grant", "fault crash", "conjunction
// frozen-over-restart". "judged S3 stores" and "void S3 stores" count the occasions at which oracles judged and could
// not judge. "step" has the state of what an event is about and the event: "step sender's put writing × Settled".
type Coverage struct{ counts []uint64 } // by point; nil is none

// A Point is the position of one path in the counts.
type Point int

// sections holds the reserved sections, in order. All sections are reserved before anything is counted.
var (
	sections   []section
	pointCount Point
)

// A section is a range of points with the function that names the points.
type section struct {
	first Point
	count int
	name  func(i int) string
}

// NewSection reserves n points and returns the first of them. Name returns the name of the i-th point, or "" if the
// path does not exist; name is called later. NewSection may only be called to initialize package variables.
func NewSection(n int, name func(i int) string) Point {
	from := pointCount
	sections = append(sections, section{from, n, name})
	pointCount += Point(n)
	return from
}

// New returns counts that are all zero.
func New() Coverage { return Coverage{make([]uint64, pointCount)} }

// Recycle returns counts that are all zero, in the memory of c, which must not be used any more.
func (c Coverage) Recycle() Coverage {
	if c.counts == nil {
		return New()
	}
	clear(c.counts)
	return c
}

// Count returns how often a path was taken.
func (c *Coverage) Count(p Point) uint64 { return c.counts[p] }

// Hit counts a path.
func (c *Coverage) Hit(p Point) { c.counts[p]++ }

// pathNames returns the names of all points; points without a path have the empty name.
var pathNames = sync.OnceValue(func() []string {
	all := make([]string, pointCount)
	for _, s := range sections {
		for i := range s.count {
			all[int(s.first)+i] = s.name(i)
		}
	}
	return all
})

// NameOf returns the name of a path, and "" if the point stands for none.
func NameOf(p Point) string { return pathNames()[p] }

// PathNames returns the names of all paths, including paths that cannot be taken.
func PathNames() []string {
	return slices.DeleteFunc(slices.Clone(pathNames()), func(name string) bool { return name == "" })
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

// Counts returns the counts of the paths of a section that were taken, by name without the name of the section. An
// empty section selects all paths, with their full names.
func (c *Coverage) Counts(section string) map[string]uint64 {
	all := map[string]uint64{}
	for p, n := range c.counts {
		name := pathNames()[p]
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

// UnmarshalJSON reads counts. UnmarshalJSON returns an error for a name that this program does not count, because the
// counts then come from a different version of the program, in which they have different meanings.
func (c *Coverage) UnmarshalJSON(text []byte) error {
	var counts map[string]uint64
	if err := json.Unmarshal(text, &counts); err != nil {
		return err
	}
	*c = New()
	for name, n := range counts {
		p := slices.Index(pathNames(), name)
		if p < 0 || name == "" {
			return fmt.Errorf("coverage %q is unknown: merge results of one version of the program only", name)
		}
		c.counts[p] = n
	}
	return nil
}
