package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Said holds the words of flows that are set in a topology or in a job. These flows are not part of this package. In
// files the words stand beside the other fields.
type Said map[string]bool

// With returns a copy with one more word. A Said is never changed in place, because plans are copied as values.
func (s Said) With(word string) Said {
	all := maps.Clone(s)
	if all == nil {
		all = Said{}
	}
	all[word] = true
	return all
}

// A Word is a setting of a flow in plans. Its functions return what is wrong with the setting and what to do instead,
// or "" if nothing is wrong.
type Word struct {
	Name  string
	World func(p *Plan) string         // checks the word in a topology; nil: not allowed there
	Job   func(p *Plan, j *Job) string // checks the word in a job; nil: not allowed there
}

// words holds all words, sorted by name.
var words []Word

// NewWord registers a word. NewWord may only be called to initialize package variables. NewWord panics if the word is
// already registered.
func NewWord(w Word) string {
	at, there := find(w.Name)
	if there || w.Name == "" {
		panic(fmt.Sprintf("BUG: word %q of plans is taken: give another", w.Name))
	}
	words = slices.Insert(words, at, w)
	return w.Name
}

// check reports the words that are unknown or wrong at a place. Ask checks one word there, and reports false if the
// word is not allowed there.
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

// find returns the position of a word, or the position at which it would be inserted.
func find(name string) (at int, there bool) {
	return slices.BinarySearchFunc(words, name, func(w Word, name string) int { return strings.Compare(w.Name, name) })
}
