package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FlowFlags holds the flags of flows that are set in a topology or in a job. The flows are not part of this package. In
// files the flags are written like fields.
type Said map[string]bool

// With returns a copy with an additional flag. A FlowFlags map is never changed in place, because plans are copied as
// values.
func (s Said) With(word string) Said {
	all := maps.Clone(s)
	if all == nil {
		all = Said{}
	}
	all[word] = true
	return all
}

// A FlowFlag is a boolean setting of a flow in plans. The functions return an explanation of what is wrong with the
// setting and what to do instead, or "" if the setting is valid.
type Word struct {
	Name  string
	World func(p *Plan) string         // checks the flag in a topology; nil: not allowed there
	Job   func(p *Plan, j *Job) string // checks the flag in a job; nil: not allowed there
}

// flowFlags holds all flags, sorted by name.
var words []Word

// RegisterFlag registers a flag and returns its name. RegisterFlag may only be called to initialize package variables.
// It panics if the flag is already registered.
func NewWord(w Word) string {
	at, there := find(w.Name)
	if there || w.Name == "" {
		panic(fmt.Sprintf("BUG: word %q of plans is taken: give another", w.Name))
	}
	words = slices.Insert(words, at, w)
	return w.Name
}

// checkFlags reports the flags that are unknown or wrong at a place of a plan. The function checkOne checks a single
// flag and reports false if the flag is not allowed there.
func (s Said) check(c *checker, place string, ask func(w *Word) (wrong string, known bool)) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		at, known := find(name)
		wrong := ""
		if known {
			wrong, known = ask(&words[at])
		}
		if !known {
			c.wrong("%s.%s is unknown: leave it out", place, name)
		} else if s[name] && wrong != "" {
			c.wrong("%s.%s is true: %s", place, name, wrong)
		}
	}
}

// findFlag returns the position of a flag, or the position at which the flag would be inserted.
func find(name string) (at int, there bool) {
	return slices.BinarySearchFunc(words, name, func(w Word, name string) int { return strings.Compare(w.Name, name) })
}
