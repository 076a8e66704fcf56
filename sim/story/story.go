// Package story turns the journal of one simulated run into a trace: a record of messages, transfers, grants, commands
// and page states, with sentences that explain the events. For a violated property the package selects the steps that
// led to the violation.
//
// Example: the simulator calls New before a run, RecordLine for each line of the journal and AfterDelivery after each
// delivery. If an oracle fails, the simulator calls RecordViolation. Finish returns the trace, which package report
// draws.
package story

import (
	"slices"
	"strings"

	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// stepsMax and faultsMax limit the steps and the additional faults of a story.
const (
	stepsMax  = 24
	faultsMax = 8 // faults that touched nothing in the story
)

// lastSteps returns the last events that touched the things in a violation, the causes of these events, and the faults
// in the same period.
func (r *Recorder) lastSteps(v *trace.Violation) []int {
	touched := r.touchFilter(v)
	var steps []int
	addStep := func(i int) {
		if !slices.Contains(steps, i) {
			steps = append(steps, i)
		}
	}
	for i := len(r.t.Events) - 1; i >= 0 && len(steps) < stepsMax; i-- {
		e := &r.t.Events[i]
		if !touched(e) {
			continue
		}
		addStep(i)
		if e.Cause > 0 && r.t.Events[i-e.Cause].Explanation != "" {
			addStep(i - e.Cause)
		}
	}
	// The faults of the period belong to the story, wherever they occurred, unless there were very many.
	var faults []int
	if len(steps) > 0 {
		for i := slices.Min(steps); i < len(r.t.Events); i++ {
			if e := &r.t.Events[i]; e.Group == trace.Fault && !r.isNoise(e) {
				faults = append(faults, i)
			}
		}
	}
	if len(faults) <= faultsMax {
		for _, i := range faults {
			addStep(i)
		}
	}
	slices.Sort(steps)
	return steps
}

func (r *Recorder) isNoise(e *trace.Event) bool {
	return strings.HasPrefix(e.Text, world.LineForms[world.KindNoise].Name)
}

// touchFilter returns a function that reports whether an event is a step of the violation. A step refers to one of the
// least vague things in v.Concerns:
//
//   - a page, grant, transfer, command or connection;
//   - without these, a request, which has many events;
//   - without these, a key, which many requests share.
//
// If v.Concerns is empty, a step is any event of the nodes in v.Nodes. A fault that refers to nothing is a step if its
// node is in v.Nodes.
func (r *Recorder) touchFilter(v *trace.Violation) func(e *trace.Event) bool {
	vagueness := func(ref int) int {
		switch name := r.t.Refs[ref]; {
		case strings.HasPrefix(name, "key "):
			return 2
		case strings.HasPrefix(name, "request "):
			return 1
		}
		return 0
	}
	best := 3
	for _, ref := range v.Concerns {
		best = min(best, vagueness(ref))
	}
	return func(e *trace.Event) bool {
		node := slices.Contains(v.Nodes, e.Node)
		switch {
		case e.Group == trace.Fault:
			// A fault of a node affects everything on the node. Noise is excluded, because no node sent it.
			if len(e.Refs) == 0 {
				return node && !r.isNoise(e)
			}
		case e.Explanation == "":
			return false // The surrounding lines describe this event.
		case best == 3:
			return node && e.Group != trace.Fact && e.Group != trace.Phase
		}
		return slices.ContainsFunc(v.Concerns,
			func(ref int) bool { return vagueness(ref) == best && slices.Contains(e.Refs, ref) })
	}
}
