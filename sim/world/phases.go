package world

import (
	"fmt"
	"runtime/debug"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// Live runs the phases of a run. A machine that panics has broken an invariant, which is a finding and must not end the
// campaign.
func (w *World) Live() {
	defer func() {
		if p := recover(); p != nil {
			w.Failure = nil
			w.Fail("panic", "%v\n%s", p, debug.Stack())
		}
	}()
	for _, phase := range []func(){w.faulty, w.Heal, w.Finish, w.Probes, w.Expire, w.End} {
		w.Journal.Note(w.Now, KindPhase, plan.Nobody, 0, 0, 0)
		if phase(); w.Failure != nil {
			return
		}
	}
}

// faulty runs the phase in which faults strike.
func (w *World) faulty() { w.RunUntil(int64(w.Setting.Faulty), nil) }

// Heal ends all faults: nodes that are down start again, and frozen nodes resume.
func (w *World) Heal() {
	w.Healed, w.walls = true, nil
	for _, n := range w.Nodes {
		n.Trap, n.twice, n.slow = Trap{}, false, 0
		if n.Up && n.Leaving {
			n.exit(w)
		}
		if !n.Up {
			n.restart(w)
		}
		n.Thaw = min(n.Thaw, w.Now)
		n.thaw(w)
	}
}

// Finish runs until every command has ended and all lent memory is returned (L1).
func (w *World) Finish() {
	for w.Failure == nil {
		w.RunUntil(w.Now+int64(w.System.Patience()), nil)
		if w.System.Pending() == 0 {
			return
		}
		w.System.Overdue() // Engines that retry may have given new commands.
	}
}

// Probes verifies that everything works again (L5).
func (w *World) Probes() { w.System.Probe() }

// Expire runs until what is never requested has expired. Afterwards only ready chunks may be left (S17, L2).
func (w *World) Expire() {
	w.RunUntil(w.Now+int64(w.System.Patience()+w.System.KeepTime()), nil)
	w.System.Overdue()
	for _, l := range w.Links {
		if n := w.Nodes[l.From]; l.Told && !l.Dropped && l.FromLife == n.Life && w.Failure == nil {
			w.Fail("S17", "node %d never drops link %d, of whose loss it was told", n.It(), oracle.Link(l.ID))
		}
	}
	for _, n := range w.Nodes {
		if w.Failure == nil {
			OnRested.Report(&w.Panel, n.ID, Rested{n, "after everything was released"})
			oracle.OnQuiet.Report(&w.Panel, n.ID, oracle.Quiet{})
		}
	}
}

// End drains every node and verifies that nothing remains (L6).
func (w *World) End() {
	for _, n := range w.Nodes {
		w.System.Drain(n)
	}
	w.RunUntil(w.Now+int64(10*effects.Second), nil)
	w.System.Overdue()
	for _, n := range w.Nodes {
		if w.Failure == nil {
			OnRested.Report(&w.Panel, n.ID, Rested{n, "after it drained"})
		}
	}
	w.answeredAll()
}

// answeredAll verifies that every request to a node that kept running was answered, unless the client disconnected
// (L8).
func (w *World) answeredAll() {
	for i := range w.Requests {
		r := &w.Requests[i]
		n := w.Nodes[r.Node]
		if w.Failure != nil || r.Replied || r.Life != n.Life || r.Moot || n.User && r.Noise {
			continue
		}
		if r.Conn != nil && (r.Conn.Closed || r.Conn.Dead) {
			continue
		}
		w.Fail("L8", "node %d never answers request %d", n.It(), oracle.Message(i+1))
	}
}

// Fail ends the run with a broken promise. The subjects among the arguments name what the sentence is about.
func (w *World) Fail(property, format string, args ...any) {
	w.FailAs(property, oracle.Promise(property), format, args...)
}

// FailAs is like Fail, with a promise that docs/safety.md need not state.
func (w *World) FailAs(property, promise, format string, args ...any) {
	if w.Failure != nil {
		return
	}
	w.Failure = &Failure{Seed: w.Seed, Profile: w.Result.Profile, System: w.Source.System, Property: property,
		Promise: promise, Story: fmt.Sprintf(format, args...), At: w.Now, Events: w.Journal.story()}
	w.Panel.End()
	if w.Journal.Rec != nil {
		w.Journal.Rec.Violated(w.Failure, args)
	}
}
