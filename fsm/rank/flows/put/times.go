package put

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
)

// A phaseClock adds up the time that a put spends in each phase, for the report of its end. No decision depends on it.
// Invariant: spent covers the time from began to since, and nothing else.
type phaseClock struct {
	began, since effects.Time
	phase        effects.Phase // PhaseQueue stands for PhaseHandshake too, as far as the peer was not Ready
	readyBefore  effects.Duration
	spent        effects.PhaseTimes
}

// EnterPhase ends the present phase of the put and begins another one, or the same one again. A put that waits is in
// PhaseQueue; how much of that time there was no link to its peer, and which therefore belongs to PhaseHandshake, follows
// from how long the peer was Ready in the meantime. So no change of a link visits the puts that wait for it.
func (r *Row) EnterPhase(e *flow.Env, next effects.Phase) {
	t := &r.times
	took, ready := e.Now.Sub(t.since), effects.Duration(0)
	if r.Peer != 0 {
		ready = e.Links.Outbound(r.Peer).ReadyTime(e.Now)
	}
	if t.phase == effects.PhaseQueue {
		linked := ready - t.readyBefore
		t.spent[effects.PhaseHandshake] += took - linked
		took = linked
	}
	t.spent[t.phase] += took
	t.since, t.phase, t.readyBefore = e.Now, next, ready
}

// BackdateReport lets the report of a put that has just been started begin at an earlier instant, at which its pages began
// to wait. The argument readyBefore is the ReadyTime of the link at that instant.
func (r *Row) BackdateReport(at effects.Time, readyBefore effects.Duration) {
	r.times = phaseClock{began: at, since: at, phase: effects.PhaseQueue, readyBefore: readyBefore}
}

// Began returns when the put began.
func (r *Row) Began() effects.Time { return r.times.began }

// report returns the times of a put that ends now.
func (r *Row) report(e *flow.Env) *effects.Report {
	r.EnterPhase(e, r.times.phase)
	bytes := uint64(0)
	for i := range r.Pages {
		bytes += uint64(r.Pages[i].Length)
	}
	return e.Out.CopyReport(effects.Report{Began: r.times.began, Phases: r.times.spent, Bytes: bytes, Trace: r.Trace})
}

// Phase returns the phase that the put is in.
func (r *Row) Phase(l *link.Links) effects.Phase {
	if r.times.phase == effects.PhaseQueue && r.Peer != 0 {
		if state, _ := l.Outbound(r.Peer).State(); state != link.Ready {
			return effects.PhaseHandshake
		}
	}
	return r.times.phase
}
