package sim

import (
	"context"
	"reflect"
	"slices"

	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// DefaultShrinkRuns is enough to bring most plans down to one or two jobs.
const DefaultShrinkRuns = 4000

// ShrinkOptions bound how long a plan is made smaller.
type ShrinkOptions struct {
	Runs     int                 // at most; 0: DefaultShrinkRuns. The result depends on nothing else.
	System   *System             // that the plan is for; nil: PD
	Oracles  []oracle.Oracle     // whose promises the plan may break besides
	Progress func(runs, max int) // if not nil, called after each run
}

// Shrunk is what [Shrink] made of a plan.
type Shrunk struct {
	Plan    plan.Plan
	Failure *Failure // of that plan
	Runs    int      // that it took
	Cut     bool     // the runs, or the context, ended before nothing more could be left out
}

// Shrink makes a plan that breaks a property smaller, as long as it still breaks that
// one: first whatever can go as a whole, nodes, jobs and faults, then what is left in
// them, then odd numbers. It keeps the best so far when ctx ends. The error tells of a
// plan that cannot be run; one that breaks nothing is returned with a nil Failure.
func Shrink(ctx context.Context, p plan.Plan, o ShrinkOptions) (Shrunk, error) {
	o.System = o.System.named(p.System)
	if o.Runs == 0 {
		o.Runs = DefaultShrinkRuns
	}
	first, err := Run(Options{Plan: &p, System: o.System, Strikes: true, Oracles: o.Oracles})
	if err != nil || first.Failure == nil {
		return Shrunk{Plan: p, Runs: 1}, err
	}
	s := &shrinker{ctx: ctx, o: o, best: p, failure: first.Failure, runs: 1}
	s.try(p.Recorded(first.Strikes))
	for s.progressed = true; s.progressed && !s.spent(); {
		s.progressed = false
		before := s.best
		for _, pass := range passes {
			pass(s)
		}
		if reflect.DeepEqual(before, s.best) {
			break // One pass undoes what another does.
		}
	}
	s.best.Property, s.best.Reaches = s.failure.Property, nil
	return Shrunk{Plan: s.best, Failure: s.failure, Runs: s.runs, Cut: s.spent()}, nil
}

type shrinker struct {
	ctx        context.Context
	o          ShrinkOptions
	best       plan.Plan
	failure    *Failure
	runs       int
	progressed bool
}

func (s *shrinker) spent() bool { return s.runs >= s.o.Runs || s.ctx.Err() != nil }

// try runs a candidate and keeps it if it breaks the same property. A candidate that
// cannot be run is none.
func (s *shrinker) try(p plan.Plan) bool {
	if s.spent() || s.o.System.Check(&p) != nil {
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

// change tries a copy of the best with something done to it, if anything was.
func (s *shrinker) change(do func(p *plan.Plan) bool) bool {
	p := s.best.Clone()
	return do(&p) && s.try(p)
}

// thin leaves out what it can of a list: halves, then quarters, down to single items.
func thin[T any](s *shrinker, list func(p *plan.Plan) *[]T) {
	for size := (len(*list(&s.best)) + 1) / 2; size > 0 && !s.spent(); size /= 2 {
		for from := 0; from < len(*list(&s.best)); {
			if !s.change(func(p *plan.Plan) bool {
				l := list(p)
				*l = slices.Delete(*l, from, min(from+size, len(*l)))
				return true
			}) {
				from += size
			}
			if s.spent() {
				return
			}
		}
	}
}
