package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
)

// Step handles completions of the requester's requests and transfers.
func (f *Requester) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch x := ev.(type) {
	case *effects.Replied:
		f.replied(e, ref.Kind, ref.Subject, x.Body)
	case *effects.Unanswered:
		f.unanswered(e, ref.Kind, ref.Subject, x.Code)
	case *effects.TransferDone:
		f.transferred(e, ref.Subject, x)
	case *effects.Settled:
		f.settled(e, ref.Subject)
	default:
		kernel.Foreign("who wants chunks")
	}
}

// Command handles a Bring or a Locate. It returns false for other commands.
func (f *Requester) Command(e *flow.Env, x *effects.Command) bool {
	switch c := x.Body.(type) {
	case *Bring:
		f.take(e, x.Ticket, c)
	case *Locate:
		f.Seeks.locate(e, x.Ticket, c, f.patience(c.Patience))
	default:
		return false
	}
	return true
}

// Due handles a deadline.
func (f *Requester) Due(e *flow.Env, ref kernel.Ref) {
	h := ref.Subject
	if ref.Kind == kindSeek {
		f.Seeks.rows.Get(h).timer = 0
		f.Seeks.stop(e, f, h, effects.Expired)
		return
	}
	r := f.gets.Get(h)
	if ref.Kind == timerAnswer {
		r.answer = 0
		f.overdue(e, h, r)
		return
	}
	r.timer = 0
	code := effects.Expired
	if r.phase == asking && e.Now.Sub(r.asked) >= f.cfg.LookupTimeout/3 {
		// The engine's patience is shorter than the timeout of a request.
		f.frozen.Open(e.Now, r.where, code, "", true, 0)
	}
	r.blame(code, outOfTime(r))
	if g, cause := e.Links.Outbound(r.peer).Gate(); r.phase == linking && g != link.GateOpen && cause != effects.OK {
		code = cause // The state of the link says more than the expired deadline.
		r.blameAs(cause, e.Links.Outbound(r.peer).Why())
	}
	f.stop(e, h, r, code)
}

func outOfTime(r *get) effects.Why {
	w := effects.Why{Field: "Patience", Ours: r.patience.String(), Theirs: "no answer"}
	switch r.phase {
	case linking:
		w.Theirs = "not connected, or busy with what came before"
	case reading:
		w.Theirs = "not all arrived"
	case asking, settling, leaving, telling, keeping, phases:
	}
	return w
}

// Signal handles a change of a peer's link or connection, or the notice that a landing is not wanted any more.
func (f *Requester) Signal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	//exhaustive:ignore
	switch s.Kind {
	case flow.Changed:
		f.loseKept(e, ref.Subject)
		f.pump(e, ref.Subject)
	case flow.Ended:
		f.grantEnded(e, e.Landings.At(ref.Subject.Slot()).ID, s.Code)
	default:
		kernel.Foreign("who wants chunks")
	}
}

// Abort ends a get or seek early. It returns false if the outcome was delivered already.
func (f *Requester) Abort(e *flow.Env, ref kernel.Ref) bool {
	if ref.Kind == kindSeek {
		f.Seeks.stop(e, f, ref.Subject, effects.Cancelled)
		return true
	}
	r := f.gets.Get(ref.Subject)
	if r.delivered {
		return false
	}
	f.stop(e, ref.Subject, r, effects.Cancelled)
	return true
}

// stop delivers the outcome of a get now, in whatever phase the get is. Requests and transfers in flight continue to
// their own ends.
func (f *Requester) stop(e *flow.Env, h table.Handle, r *get, code effects.Code) {
	switch r.phase {
	case linking:
		f.gets.Unlink(&f.line(r).asks, h)
		f.deliver(e, r, code)
		f.end(e, h, r)
	// A late reply may name a loan, which is then given back.
	case asking:
		e.Out.Mark(Marks.Stopped)
		f.haunt(e, h, r, code)
	// The pages may be stored into until the transfer has settled.
	case reading:
		e.Out.Mark(Marks.Stopped)
		r.read.Cancel(&e.Env)
		f.deliver(e, r, code)
	case settling, leaving, telling, keeping, phases:
		panic("BUG: a get has its outcome before it is finished with")
	}
}
