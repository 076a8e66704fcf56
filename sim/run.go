package sim

import (
	"fmt"
	"runtime/debug"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Options say what to run.
type Options struct {
	Seed       uint64
	Profile    string       // one of Profiles; empty: DefaultProfile
	Plan       *plan.Plan   // what to run instead of what the seed draws; it is only read
	System     *System      // what runs; nil: PD
	Strikes    bool         // keep every strike in Result.Strikes
	Properties []Property   // promises of the caller's own
	Log        func(string) // gets every line of the event log; nil: nobody
	Record     bool         // keep a trace, for people to look at; it changes nothing that happens
	careless   carelessness // of the drivers of ranks that fail alone
}

// Run runs one seed, or one plan, to its end or to the first broken promise. The error
// tells of options that cannot be run, never of a failure.
func Run(o Options) (Result, error) {
	p := o.Plan
	if p == nil {
		drawn, err := o.System.Expand(o.Seed, o.Profile)
		if err != nil {
			return Result{}, err
		}
		p = &drawn
	} else if err := o.System.Check(p); err != nil {
		return Result{}, err
	}
	w := worlds.Get().(*world)
	if err := w.begin(o, p); err != nil {
		return Result{}, err
	}
	w.journal.compares = p.Foreign()
	w.live()
	w.compared(o)
	w.result.nameFaults()
	w.ended()
	if o.Plan != nil {
		w.result.Unused = w.unused()
	}
	w.result.Hash = w.journal.hash
	w.result.Events = w.journal.count
	w.result.Simulated = effects.Duration(w.now)
	w.result.Failure = w.failure
	if o.Record {
		w.result.Trace = w.journal.rec.end()
	}
	r := w.result
	if r.Failure == nil {
		w.retire()
	}
	return r, nil
}

// live runs the phases. A machine that panics broke an invariant: that is a finding,
// not the end of the campaign.
func (w *world) live() {
	defer func() {
		if p := recover(); p != nil {
			w.failure = nil
			w.fail("panic", "%v\n%s", p, debug.Stack())
		}
	}()
	for _, phase := range []func(){w.faulty, w.heal, w.finish, w.probes, w.expire, w.end} {
		w.journal.note(w.now, kindPhase, plan.Nobody, 0, 0, 0)
		if phase(); w.failure != nil {
			return
		}
	}
}

// faulty is the part in which things go wrong.
func (w *world) faulty() { w.runUntil(int64(w.plan.Faulty), nil) }

// heal ends all faults: what is down comes up, what is frozen thaws by itself.
func (w *world) heal() {
	w.healed, w.walls = true, nil
	for _, n := range w.nodes {
		n.trap, n.twice, n.slow = trap{}, false, 0
		if n.up && n.leaving {
			w.exit(n)
		}
		if !n.up {
			w.restart(n)
		}
		n.thaw = min(n.thaw, w.now)
		w.thaw(n)
	}
}

// finish: every command ends and all lent memory comes back (L1).
func (w *world) finish() {
	for w.failure == nil {
		w.runUntil(w.now+int64(w.system.engine.patience(w)), nil)
		if w.unfinished == 0 {
			return
		}
		w.system.engine.overdue(w) // Engines that retry may still have given new ones.
	}
}

// probes: everything works again (L5).
func (w *world) probes() { w.system.engine.probe(w) }

// expire: what nobody came for is given up in time, and then only ready chunks are left (S17, L2).
func (w *world) expire() {
	w.runUntil(w.now+int64(w.system.engine.patience(w)+w.system.engine.keeps(w)), nil)
	w.system.engine.overdue(w)
	for _, l := range w.links {
		if n := w.nodes[l.from]; l.told && !l.dropped && l.fromLife == n.life && w.failure == nil {
			w.fail("S17", "node %d never drops link %d, of whose loss it was told", n.it(), oracle.Link(l.id))
		}
	}
	for _, n := range w.nodes {
		if w.failure == nil {
			w.oracles.onQuiet(n, "after everything was released")
			w.tellQuiet(n)
		}
	}
}

// end: every node drains without a remainder (L6).
func (w *world) end() {
	for _, n := range w.nodes {
		w.system.engine.drain(w, n)
	}
	w.runUntil(w.now+int64(10*effects.Second), nil)
	w.system.engine.overdue(w)
	for _, n := range w.nodes {
		if w.failure == nil {
			w.oracles.onQuiet(n, "after it drained")
		}
	}
	w.answeredAll()
}

// answeredAll: whoever asked a node that lived on, and stayed, was answered (L8).
func (w *world) answeredAll() {
	for i := range w.requests {
		r := &w.requests[i]
		n := w.nodes[r.node]
		if w.failure != nil || r.replied || r.life != n.life || r.moot || n.own != nil && r.noise {
			continue
		}
		if r.conn != nil && (r.conn.closed || r.conn.dead) {
			continue
		}
		w.fail("L8", "node %d never answers request %d", n.it(), oracle.Message(i+1))
	}
}

// fail ends the run with a broken promise. The subjects among its arguments are what the sentence is about.
func (w *world) fail(property, format string, args ...any) {
	w.failAs(property, oracle.Promise(property), format, args...)
}

func (w *world) failAs(property, promise, format string, args ...any) {
	if w.failure != nil {
		return
	}
	w.failure = &Failure{Seed: w.seed, Profile: w.result.Profile, System: w.source.System, Property: property,
		Promise: promise, Story: fmt.Sprintf(format, args...), At: w.now, Events: w.journal.story()}
	w.journal.rec.violated(w.failure, args)
}
