package world

import (
	"fmt"
	"runtime/debug"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// RunPhases runs the phases of a run. A machine that panics has broken an invariant, which is a finding and must not
// end the campaign.
func (w *World) RunPhases() {
	defer func() {
		if p := recover(); p != nil {
			w.Failure = nil
			w.Fail("panic", "%v\n%s", p, debug.Stack())
		}
	}()
	for _, phase := range []func(){w.runFaults, w.HealAll, w.FinishCommands, w.RunProbes, w.RunExpiry, w.DrainAll} {
		w.Journal.AddLine(w.Now, KindPhase, plan.NoNode, 0, 0, 0)
		if phase(); w.Failure != nil {
			return
		}
	}
}

// runFaults runs the phase in which faults strike.
func (w *World) runFaults() { w.RunUntil(int64(w.Conditions.FaultsEnd), nil) }

// HealAll ends all faults: nodes that are down start again, and frozen nodes resume.
func (w *World) HealAll() {
	w.Healed, w.partitions = true, nil
	for _, n := range w.Nodes {
		n.Trap, n.crashesAgain, n.slowUntil = Trap{}, false, 0
		if n.Up && n.Leaving {
			n.exitProcess(w)
		}
		if !n.Up {
			n.restartNode(w)
		}
		n.ResumeAt = min(n.ResumeAt, w.Now)
		n.resumeProcess(w)
	}
}

// FinishCommands runs until every command has ended and all lent memory is returned (L1).
func (w *World) FinishCommands() {
	for w.Failure == nil {
		w.RunUntil(w.Now+int64(w.System.LongestDeadline()), nil)
		if w.System.PendingCommands() == 0 {
			return
		}
		w.System.FailOverdue() // Engines that retry may have given new commands.
	}
}

// RunProbes verifies that everything works again (L5).
func (w *World) RunProbes() { w.System.ProbeTransfers() }

// RunExpiry runs until what is never requested has expired. Afterwards only ready chunks may be left (S17, L2).
func (w *World) RunExpiry() {
	w.RunUntil(w.Now+int64(w.System.LongestDeadline()+w.System.KeepTime()), nil)
	w.System.FailOverdue()
	for _, l := range w.Links {
		if n := w.Nodes[l.From]; l.LossReported && !l.Dropped && l.FromIncarnation == n.Incarnation && w.Failure == nil {
			w.Fail("S17", "node %d never drops link %d, whose loss was reported", n.AsSubject(), oracle.Link(l.ID))
		}
	}
	for _, n := range w.Nodes {
		if w.Failure == nil {
			OnNodeAtRest.Report(&w.Panel, n.ID, NodeAtRest{n, "after everything was released"})
			oracle.OnNodeIdle.Report(&w.Panel, n.ID, oracle.NodeIdle{})
		}
	}
}

// DrainAll drains every node and verifies that nothing remains (L6).
func (w *World) DrainAll() {
	for _, n := range w.Nodes {
		w.System.DrainNode(n)
	}
	w.RunUntil(w.Now+int64(10*effects.Second), nil)
	w.System.FailOverdue()
	for _, n := range w.Nodes {
		if w.Failure == nil {
			OnNodeAtRest.Report(&w.Panel, n.ID, NodeAtRest{n, "after it drained"})
		}
	}
	w.checkAnswered()
}

// checkAnswered verifies that every request to a node that kept running was answered, unless the client disconnected
// (L8).
func (w *World) checkAnswered() {
	for i := range w.Requests {
		r := &w.Requests[i]
		n := w.Nodes[r.Node]
		if w.Failure != nil || r.Replied || r.Incarnation != n.Incarnation || r.NeedsNoReply || n.Custom && r.IsNoise {
			continue
		}
		if r.Conn != nil && (r.Conn.Closed || r.Conn.Dead) {
			continue
		}
		w.Fail("L8", "node %d never answers request %d", n.AsSubject(), oracle.Message(i+1))
	}
}

// Fail ends the run with a broken promise. The subjects among the arguments name what the sentence is about.
func (w *World) Fail(property, format string, args ...any) {
	w.FailAs(property, oracle.Promise(property), format, args...)
}

// CountJudged counts that the checks have judged. If a promise is broken, the caller also calls FailCheck.
func (w *World) CountJudged(checks ...oracle.Check) {
	for _, c := range checks {
		c.CountJudged(&w.Result.Coverage)
	}
}

// FailCheck ends the run because the property of the check is broken.
func (w *World) FailCheck(c oracle.Check, format string, args ...any) {
	w.Fail(c.Property(), format, args...)
}

// FailAs is like Fail, with a promise that docs/safety.md need not state.
func (w *World) FailAs(property, promise, format string, args ...any) {
	if w.Failure != nil {
		return
	}
	w.Failure = &Failure{Seed: w.Seed, Profile: w.Result.Profile, System: w.SourcePlan.System, Property: property,
		Promise: promise, Story: fmt.Sprintf(format, args...), At: w.Now, Events: w.Journal.lastLines()}
	w.Panel.StopReports()
	if w.Journal.Observer != nil {
		w.Journal.Observer.RecordViolation(w.Failure, args)
	}
}
