package rank

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Drain ends a rank's work: new commands and requests are refused as Draining,
// waiting ones are answered, grants are taken back, open puts go on. It delivers OK
// when nothing is left, or after Patience Expired with Left things still out, and
// then only the end of the process is safe. What the rank can end by itself it always
// ends first: patience is for others.
type Drain struct{ Patience effects.Duration }

// IsCommand marks a command body.
func (*Drain) IsCommand() {}

type drain struct {
	ticket effects.Ticket
	timer  kernel.TimerID `snap:"set"`
	late   bool           // its patience is over, and its own pass is not
}

func (r *Rank) onDrain(e *flow.Env, t effects.Ticket, d *Drain) {
	v := &e.Env
	if r.drain.ticket != 0 || d.Patience < 0 {
		v.Out.Deliver(effects.Deliver{Ticket: t, Code: effects.Invalid, Why: &effects.Why{
			Stage: effects.StageCommand, Field: "Drain", Theirs: "a second one, or with Patience below 0", Ours: "one",
		}})
		return
	}
	r.drain.ticket, r.drain.late = t, false // One before it may have run out.
	r.draining, e.Draining = true, true
	v.Timers.Set(&r.drain.timer, v.Now.Add(d.Patience), kernel.Ref{Owner: kernel.OwnerRank})
	if r.cfg.Knows() {
		r.registrar.Leave(v, &r.rooms.Store)
	}
	r.stopServing(e)
}

// left counts what a drain waits for.
func (r *Rank) left(e *flow.Env) (n int) {
	for _, of := range r.flows.all {
		n += r.owner(of).Left(e)
	}
	return n + r.owner(kernel.OwnerEngine).Left(e) + r.owner(kernel.OwnerPending).Left(e) + r.registrar.Left()
}

func (r *Rank) maybeEndDrain(e *flow.Env) {
	switch {
	case r.drain.ticket == 0 || r.sweeps.of[sweepDrained].Under():
	case r.left(e) == 0:
		r.endDrain(e, effects.OK)
	case r.drain.late:
		r.endDrain(e, effects.Expired)
	}
}

func (r *Rank) endDrain(e *flow.Env, code effects.Code) {
	v := &e.Env
	v.Timers.Stop(&r.drain.timer)
	out := effects.Deliver{Ticket: r.drain.ticket, Code: code, Left: uint32(r.left(e))}
	if code != effects.OK {
		out.Why = &effects.Why{
			Stage: effects.StageCommand, Field: "things still out", Theirs: strconv.Itoa(int(out.Left)), Ours: "none",
		}
	}
	v.Out.Deliver(out)
	r.drain.ticket = 0
}
