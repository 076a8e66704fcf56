package sim

import (
	"context"
	"reflect"
	"slices"

	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// DefaultShrinkRuns is the default number of runs. This number is enough to reduce most plans to one or two jobs.
const DefaultShrinkRuns = 4000

// ShrinkOptions limits the effort of [Shrink] and says how to run the plan.
type ShrinkOptions struct {
	Runs     int                 // maximum number of runs; 0: DefaultShrinkRuns. The result depends on nothing else.
	System   *System             // the system of the plan; nil: [PD]
	Oracles  []oracle.Oracle     // oracles of the caller, in addition to those of the system
	Progress func(runs, max int) // if not nil, called after each run
}

// ShrinkResult is the result of [Shrink].
type ShrinkResult struct {
	Plan       plan.Plan
	Failure    *Failure // of Plan; nil if the plan breaks no promise
	Runs       int      // the number of runs that were made
	Incomplete bool     // the limit of runs or the context ended the search early
}

// Shrink reduces a plan that breaks a property, as long as the plan still breaks the same property. Shrink first
// removes whole nodes, jobs and faults, then their parts, then unusual numbers. When ctx ends, Shrink returns the best
// plan found so far. Shrink returns an error if the plan cannot be run. If the plan breaks no promise, Shrink returns
// the plan unchanged with a nil Failure.
func Shrink(ctx context.Context, p plan.Plan, o ShrinkOptions) (ShrinkResult, error) {
	o.System = o.System.orBuiltin(p.System)
	if o.Runs == 0 {
		o.Runs = DefaultShrinkRuns
	}
	first, err := Run(Options{Plan: &p, System: o.System, RecordStrikes: true, Oracles: o.Oracles})
	if err != nil || first.Failure == nil {
		return ShrinkResult{Plan: p, Runs: 1}, err
	}
	state := &shrinkState{ctx: ctx, o: o, best: p, failure: first.Failure, runs: 1}
	state.tryPlan(p.WithStrikes(first.Strikes))
	for state.progressed = true; state.progressed && !state.isExhausted(); {
		state.progressed = false
		before := state.best
		for _, pass := range shrinkPasses {
			pass(state)
		}
		if reflect.DeepEqual(before, state.best) {
			break // Two passes undo each other's changes.
		}
	}
	state.best.Property, state.best.Reaches = state.failure.Property, nil
	return ShrinkResult{Plan: state.best, Failure: state.failure, Runs: state.runs, Incomplete: state.isExhausted()}, nil
}

// shrinkState is the state of one [Shrink].
type shrinkState struct {
	ctx        context.Context
	o          ShrinkOptions
	best       plan.Plan
	failure    *Failure
	runs       int
	progressed bool
}

// isExhausted reports whether the limit of runs is reached or the context has ended.
func (s *shrinkState) isExhausted() bool { return s.runs >= s.o.Runs || s.ctx.Err() != nil }

// tryPlan runs a candidate and keeps a candidate that breaks the same property. A candidate that cannot be run is
// rejected.
func (s *shrinkState) tryPlan(p plan.Plan) bool {
	if s.isExhausted() || s.o.System.Check(&p) != nil {
		return false
	}
	s.runs++
	r, err := Run(Options{Plan: &p, System: s.o.System, Oracles: s.o.Oracles})
	if s.o.Progress != nil {
		s.o.Progress(s.runs, s.o.Runs)
	}
	if err != nil || r.Failure == nil || r.Failure.Property != s.failure.Property {
		return false
	}
	s.best, s.failure, s.progressed = p, r.Failure, true
	return true
}

// tryChange applies edit to a copy of the best plan and tries the result, unless edit reports that nothing has changed.
func (s *shrinkState) tryChange(edit func(p *plan.Plan) bool) bool {
	p := s.best.Clone()
	return edit(&p) && s.tryPlan(p)
}

// removeElements removes elements from a list as far as possible: halves first, then quarters, down to single elements.
func removeElements[T any](s *shrinkState, list func(p *plan.Plan) *[]T) {
	for size := (len(*list(&s.best)) + 1) / 2; size > 0 && !s.isExhausted(); size /= 2 {
		for from := 0; from < len(*list(&s.best)); {
			if !s.tryChange(func(p *plan.Plan) bool {
				l := list(p)
				*l = slices.Delete(*l, from, min(from+size, len(*l)))
				return true
			}) {
				from += size
			}
			if s.isExhausted() {
				return
			}
		}
	}
}
