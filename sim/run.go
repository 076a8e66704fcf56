package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/story"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// Options say what to run.
type Options struct {
	Seed     uint64
	Profile  string             // one of Profiles; empty: DefaultProfile
	Plan     *plan.Plan         // what to run instead of what the seed draws; it is only read
	System   *System            // what runs; nil: PD
	Strikes  bool               // keep every strike in Result.Strikes
	Oracles  []oracle.Oracle    // of the caller's own, which hear of all nodes
	Log      func(string)       // gets every line of the event log; nil: nobody
	Record   bool               // keep a trace, for people to look at; it changes nothing that happens
	careless world.Carelessness // of the drivers of ranks that fail alone
	coverage Coverage           // of a run before, which nobody looks at any more; nil is none
}

// Run runs one seed, or one plan, to its end or to the first broken promise. The error
// tells of options that cannot be run, never of a failure.
func Run(o Options) (Result, error) {
	p := o.Plan
	if o.System = o.System.named(o.Profile); p != nil {
		o.System = o.System.named(p.System)
	}
	if p == nil {
		drawn, err := o.System.Expand(o.Seed, o.Profile)
		if err != nil {
			return Result{}, err
		}
		p = &drawn
	} else if err := o.System.Check(p); err != nil {
		return Result{}, err
	}
	w := trials.Get().(*trial)
	if err := w.begin(o, p); err != nil {
		return Result{}, err
	}
	w.Journal.Compares = p.Foreign()
	w.Live()
	w.compared(o)
	w.Result.NameFaults()
	w.reportEnd()
	if o.Plan != nil {
		w.Result.Unused = w.Unused()
	}
	w.Result.Hash = w.Journal.Hash
	w.Result.Events = w.Journal.Count
	w.Result.Simulated = effects.Duration(w.Now)
	if w.Result.Failure = w.Failure; w.Failure != nil && isOurs(o.System) {
		w.Failure.System = "" // The command knows it by its profile.
	}
	if o.Record {
		w.Result.Trace = w.Journal.Rec.(*story.Recorder).End()
	}
	r := w.Result
	if r.Failure == nil {
		w.retire()
	}
	return r, nil
}

// Explain runs a seed that failed again, with a recorder, and returns its failure with all that is to
// be said of it, and the trace, which is called by how f is shown again. A failure that cannot be had again is
// returned as it was.
func Explain(f *Failure, o Options) (*Failure, *trace.Trace) {
	o.Record, o.Log = true, nil
	r, err := Run(o)
	if err != nil || r.Failure == nil || r.Failure.Property != f.Property {
		return f, nil
	}
	r.Failure.Plan, r.Failure.Again = f.Plan, f.Again
	r.Trace.Title = r.Failure.Replay()
	return r.Failure, r.Trace
}
