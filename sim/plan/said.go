package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Said is what a plan says of flows that are no part of this package, by their words: in its topology, or of a job. In
// files they stand beside other fields.
type Said map[string]bool

// With is the same and one word more. What is said is never changed in place: plans are copied as values.
func (s Said) With(word string) Said {
	all := maps.Clone(s)
	if all == nil {
		all = Said{}
	}
	all[word] = true
	return all
}

// A Word is what plans may say of a flow. Who says it gets told what is wrong with that, and what to do instead; empty:
// nothing is.
type Word struct {
	Name  string
	World func(p *Plan) string         // in a topology; nil: it is not said there
	Job   func(p *Plan, j *Job) string // of a job; nil: it is not said there
}

// words are all, in the order of their names.
var words []Word

// NewWord has plans know a word. It is for variables of packages: after those are there, nobody may say more.
func NewWord(w Word) string {
	at, there := find(w.Name)
	if there || w.Name == "" {
		panic(fmt.Sprintf("BUG: word %q of plans is taken: give another", w.Name))
	}
	words = slices.Insert(words, at, w)
	return w.Name
}

// check says what is wrong with what is said at a place, where ask asks a word. Who does not know it refuses it.
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

// find is where a word is, or would be, among all.
func find(name string) (at int, there bool) {
	return slices.BinarySearchFunc(words, name, func(w Word, name string) int { return strings.Compare(w.Name, name) })
}
