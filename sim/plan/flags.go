package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// FlowFlags holds the flags of flows that are set in a topology or in a job. The flows are not part of this package. In
// files the flags are written like fields.
type FlowFlags map[string]bool

// ReportsEnd is the flag of a job whose sender's engine reports how the request ended. It belongs to no flow.
var ReportsEnd = RegisterFlag(FlowFlag{Name: "tells", CheckJob: func(_ *Plan, j *Job) string {
	if j.Plain || j.PlainTo {
		return "it needs a sender and a receiver that are ranks; leave out tells, or plain and plain_to"
	}
	return ""
}})

// With returns a copy with an additional flag. A FlowFlags map is never changed in place, because plans are copied as
// values.
func (s FlowFlags) With(flag string) FlowFlags {
	all := maps.Clone(s)
	if all == nil {
		all = FlowFlags{}
	}
	all[flag] = true
	return all
}

// A FlowFlag is a boolean setting of a flow in plans. The functions return an explanation of what is wrong with the
// setting and what to do instead, or "" if the setting is valid.
type FlowFlag struct {
	Name          string
	CheckTopology func(p *Plan) string         // checks the flag in a topology; nil: not allowed there
	CheckJob      func(p *Plan, j *Job) string // checks the flag in a job; nil: not allowed there
}

// flowFlags holds all flags, sorted by name.
var flowFlags []FlowFlag

// RegisterFlag registers a flag and returns its name. RegisterFlag may only be called to initialize package variables.
// It panics if the flag is already registered.
func RegisterFlag(w FlowFlag) string {
	index, taken := findFlag(w.Name)
	if taken || w.Name == "" {
		panic(fmt.Sprintf("BUG: flag %q of plans is already registered", w.Name))
	}
	flowFlags = slices.Insert(flowFlags, index, w)
	return w.Name
}

// checkFlags reports the flags that are unknown or wrong at a place of a plan. The function checkOne checks a single
// flag and reports false if the flag is not allowed there.
func (s FlowFlags) checkFlags(c *checker, place string, checkOne func(w *FlowFlag) (wrong string, known bool)) {
	for _, name := range slices.Sorted(maps.Keys(s)) {
		index, known := findFlag(name)
		wrong := ""
		if known {
			wrong, known = checkOne(&flowFlags[index])
		}
		if !known {
			c.addError("%s.%s is unknown: leave it out", place, name)
		} else if s[name] && wrong != "" {
			c.addError("%s.%s is true: %s", place, name, wrong)
		}
	}
}

// findFlag returns the position of a flag, or the position at which the flag would be inserted.
func findFlag(name string) (index int, found bool) {
	return slices.BinarySearchFunc(flowFlags, name, func(w FlowFlag, name string) int { return strings.Compare(w.Name, name) })
}
