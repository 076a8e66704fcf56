package layerwise

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// take handles a Finish. The incomplete chunk at the end is sent last, with all layers at once.
func (f *Source) take(e *flow.Env, t effects.Ticket, c *Finish) {
	h, r := f.find(c.Request, c.Run)
	if code, why := f.checkFinish(e, r, c); code != effects.OK {
		engine.TurnDown(&e.Env, t, code, why)
		return
	}
	r.patience = c.Patience
	if r.patience == 0 {
		r.patience = e.Commands.PutTimeout()
	}
	at, s := f.saves.Add()
	*s = save{Op: engine.Op{Pages: s.Pages}}
	s.Begin(&e.Env, t, c.Pages, r.patience)
	r.finish, r.total = at, max(r.base, c.Tokens/e.Cfg.Layout.Tokens())
	e.Tickets.Add(t, ref(kindRun, h))
	e.Timers.Stop(&r.timer)
	e.Timers.Set(&r.timer, s.Deadline, ref(kindRun, h))
	if len(c.Pages) > 0 {
		r.total, r.tokens = r.total+1, c.Tokens%e.Cfg.Layout.Tokens()
	}
	if len(c.Pages) > 0 && r.failed == effects.OK && !r.nowhere() {
		r.know(c.Key)
		for layer, page := range c.Pages {
			f.enqueue(r, at, r.total-1, uint32(layer), page)
		}
	}
	if r.failed != effects.OK {
		f.conclude(e, h, r)
		return
	}
	if f.flush(e, h, r); f.runs.Get(h) != nil {
		f.maybeConclude(e, h, r)
	}
}

// checkFinish returns an error if a Finish cannot be accepted.
func (f *Source) checkFinish(e *flow.Env, r *run, c *Finish) (effects.Code, *effects.Why) {
	if r == nil {
		return effects.NotFound, noRun(c.Request)
	}
	tokens := e.Cfg.Layout.Tokens()
	whole, rest := max(r.base, c.Tokens/tokens), c.Tokens%tokens
	switch {
	case r.finish != 0:
		return effects.Ended, invalid("Request", "finishing", "one whose Finish did not come")
	case c.Patience < 0:
		return effects.Invalid, invalid("Patience", c.Patience.String(), "0 or more")
	case c.Tokens/tokens < r.base: // All tokens were present at the peer before.
		rest = 0
	}
	for layer, sent := range r.sent {
		if r.failed == effects.OK && (sent != whole || r.known() != whole) {
			return effects.Invalid, invalid("Tokens", number(c.Tokens), number(sent*tokens)+" to "+number((sent+1)*tokens-1)+
				", of which layer "+number(layer)+" was saved")
		}
	}
	want := 0
	if rest > 0 {
		want = int(f.cfg.Layers)
	}
	if len(c.Pages) != want {
		return effects.Invalid, invalid("Pages", number(len(c.Pages)), number(want)+", for the "+number(rest)+
			" tokens behind the last whole chunk")
	}
	for i, page := range c.Pages {
		if code, why := checkPage(e, page, e.Cfg.Layout.TokenBytes()*uint64(rest), i); code != effects.OK {
			return code, why
		}
	}
	if want > 0 {
		if err := protocol.CheckKey(c.Key, e.Cfg.Wire.KeyBytes-len("@1023")); err != nil {
			return effects.Invalid, invalid("Key", effects.Words([]byte(err.Error())), "")
		}
	}
	return effects.OK, nil
}

// maybeConclude ends a run that has a Finish and nothing queued or in flight.
func (f *Source) maybeConclude(e *flow.Env, h table.Handle, r *run) {
	if r.finish != 0 && r.queue.Len() == 0 && r.shut.Len() == 0 && r.batches.Len() == 0 {
		if r.failed == effects.OK && !r.nowhere() && r.unconfirmed() > 0 {
			panic("BUG: a request has gone, and chunks of it are not whole")
		}
		f.conclude(e, h, r)
	}
}

// unconfirmed returns the number of chunks that are not known to be whole at the peer.
func (r *run) unconfirmed() (n uint32) {
	n = r.total - r.base
	for i := range r.chunks {
		if r.chunks[i].there {
			n--
		}
	}
	return n
}

// conclude delivers the outcome of a Finish, notifies the proxy and ends the run.
func (f *Source) conclude(e *flow.Env, h table.Handle, r *run) {
	at := r.finish
	s := f.saves.Get(at)
	missing := uint32(0)
	if !r.nowhere() {
		missing = r.unconfirmed()
	}
	out := effects.Deliver{Code: r.failed, Held: s.left > 0, Sent: r.total - r.base - missing}
	if r.failed != effects.OK {
		out.Why = r.because()
	} else if r.nowhere() {
		out.Sent, out.Skipped = 0, out.Sent
	}
	e.Tickets.Remove(s.Ticket)
	s.Deliver(&e.Env, out)
	e.Out.Observe(effects.Observe{
		Fact: effects.FactLayersEnded, Code: r.failed, Count: missing, ID: uint64(s.Ticket), Why: out.Why,
	})
	if s.outlives = s.Held(); s.outlives {
		f.held++
	} else {
		f.over(at, s)
	}
	if !r.nowhere() {
		e.Commands.Last(r.request)
		e.Commands.Leave(&e.Env, r.request, missing, r.failed)
	}
	f.end(e, h, r)
}

// because returns the reason of a failed run for the outcome.
func (r *run) because() *effects.Why {
	w := effects.Why{}
	if r.why != nil {
		w = *r.why
	}
	if w.Addr == (effects.Addr{}) {
		w.Addr = effects.Addr{Host: r.peer.Host, Port: r.peer.InitPort}
	}
	if w.Stage == effects.StageNone {
		w.Stage = effects.StageTransfer
	}
	return &w
}
