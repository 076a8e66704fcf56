package rank

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Drain ends a rank's work. From then on new commands and requests are refused as Draining, waiting requests are
// answered, grants are revoked, and open puts continue. Drain delivers OK when nothing is left. If something is still
// left after Timeout, Drain delivers Expired, with the number of open things in Left; then only the end of the process
// makes the memory safe to reuse. Work that the rank can end by itself always ends before the outcome: Timeout bounds
// the wait for peers.
type Drain struct{ Timeout effects.Duration }

// IsCommand marks Drain as a command body.
func (*Drain) IsCommand() {}

// drain is the state of the Drain that is in progress.
type drain struct {
	ticket effects.Ticket // 0: no Drain waits for its outcome
	timer  kernel.TimerID `snap:"set"`
	late   bool           // Timeout is over, but the sweep has not ended yet
}

func (r *Rank) onDrain(e *flow.Env, t effects.Ticket, d *Drain) {
	v := &e.Env
	if r.drain.ticket != 0 || d.Timeout < 0 {
		v.Out.Deliver(effects.Deliver{Ticket: t, Code: effects.Invalid, Why: &effects.Why{
			Stage: effects.StageCommand, Field: "Drain", Theirs: "a second Drain, or a Drain with Timeout below 0", Ours: "a single Drain",
		}})
		return
	}
	r.drain.ticket, r.drain.late = t, false // An earlier Drain may have expired.
	r.draining, e.Draining = true, true
	v.Timers.Set(&r.drain.timer, v.Now.Add(d.Timeout), kernel.Ref{Owner: kernel.OwnerRank})
	if r.cfg.UsesDirectories() {
		r.registrar.Leave(v, &r.sharedRooms.Store)
	}
	r.stopServing(e)
}

func (r *Rank) maybeEndDrain(e *flow.Env) {
	switch {
	case r.drain.ticket == 0 || r.sweeps.byKind[sweepDrained].IsRunning():
	case r.countUnfinished(e) == 0:
		r.endDrain(e, effects.OK)
	case r.drain.late:
		r.endDrain(e, effects.Expired)
	}
}

func (r *Rank) endDrain(e *flow.Env, code effects.Code) {
	v := &e.Env
	v.Timers.Stop(&r.drain.timer)
	out := effects.Deliver{Ticket: r.drain.ticket, Code: code, Left: uint32(r.countUnfinished(e))}
	if code != effects.OK {
		out.Why = &effects.Why{
			Stage: effects.StageCommand, Field: "things still out", Theirs: strconv.Itoa(int(out.Left)), Ours: "none",
		}
	}
	v.Out.Deliver(out)
	r.drain.ticket = 0
}
