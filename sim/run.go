package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/story"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// Options selects what a run executes.
type Options struct {
	Seed          uint64
	Profile       string              // a name of [Profiles]; empty: [DefaultProfile]
	Plan          *plan.Plan          // the plan to run instead of the plan of the seed; read-only
	System        *System             // the system to run; nil: [PD]
	RecordStrikes bool                // keep every strike in Result.Strikes
	Oracles       []oracle.Oracle     // oracles of the caller, which receive reports about all nodes
	Log           func(string)        // receives every line of the event log; may be nil
	RecordTrace   bool                // keep a trace for people to look at; does not change what happens
	driverMistake world.DriverMistake // a mistake of the drivers of ranks that fail alone; for tests
	tracesPuts    bool                // give each put a trace; for tests
	coverage      Coverage            // counts of an earlier run, whose memory is used again; nil: none
}

// Run runs a seed or a plan until the run is over or the first promise is broken. Run returns an error only if the
// options cannot be run; a broken promise is reported in the result's Failure.
func Run(o Options) (Result, error) {
	p := o.Plan
	if o.System = o.System.orBuiltin(o.Profile); p != nil {
		o.System = o.System.orBuiltin(p.System)
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
	if err := w.prepareRun(o, p); err != nil {
		return Result{}, err
	}
	w.Journal.KeepsSentHash = p.HasForeign()
	w.RunPhases()
	w.checkEncodings(o)
	w.Result.NameFaults()
	w.reportRunEnd()
	if o.Plan != nil {
		w.Result.UnusedFaults = w.UnusedFaults()
	}
	w.Result.Hash = w.Journal.Hash
	w.Result.Events = w.Journal.Count
	w.Result.Simulated = effects.Duration(w.Now)
	if w.Result.Failure = w.Failure; w.Failure != nil && isBuiltin(o.System) {
		w.Failure.System = "" // The command line selects the system by its profile.
	}
	if o.RecordTrace {
		w.Result.Trace = w.Journal.Observer.(*story.Recorder).Finish()
	}
	r := w.Result
	if r.Failure == nil {
		w.recycleTrial()
	}
	return r, nil
}

// Explain runs a seed that failed once more with a recorder. Explain returns the failure with its explanation, and the
// trace. The title of the trace is the command that repeats f. If the run does not fail with the same property, Explain
// returns f unchanged and a nil trace.
func Explain(f *Failure, o Options) (*Failure, *trace.Trace) {
	o.RecordTrace, o.Log = true, nil
	r, err := Run(o)
	if err != nil || r.Failure == nil || r.Failure.Property != f.Property {
		return f, nil
	}
	r.Failure.Plan, r.Failure.ReplayOverride = f.Plan, f.ReplayOverride
	r.Trace.Title = r.Failure.ReplayCommand()
	return r.Failure, r.Trace
}
