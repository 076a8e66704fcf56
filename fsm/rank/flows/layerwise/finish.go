package layerwise

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// finishRun handles a Finish. The incomplete chunk at the end is sent last, with all layers at once.
func (f *Source) finishRun(e *flow.Env, t effects.Ticket, c *Finish) {
	h, r := f.findRun(c.Request, c.Run)
	if code, why := f.checkFinish(e, r, c); code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, why)
		return
	}
	r.timeout = c.Timeout
	if r.timeout == 0 {
		r.timeout = e.Commands.PutTimeout()
	}
	at, s := f.saves.Add()
	*s = save{Op: engine.Op{Pages: s.Pages}}
	s.BeginCommand(&e.Env, t, nil, c.Pages, r.timeout)
	r.finishedAt = e.Now
	r.finishSave, r.chunkCount = at, max(r.base, c.Tokens/e.Cfg.Layout.TokenCount())
	e.Tickets.Add(t, sourceRef(kindRun, h))
	e.Timers.Stop(&r.timer)
	e.Timers.Set(&r.timer, s.Deadline, sourceRef(kindRun, h))
	if len(c.Pages) > 0 {
		r.chunkCount, r.tailTokens = r.chunkCount+1, c.Tokens%e.Cfg.Layout.TokenCount()
	}
	if len(c.Pages) > 0 && r.failCode == effects.OK && !r.hasNoPeer() {
		r.addChunk(c.Key)
		for layer, page := range c.Pages {
			f.enqueueLayer(e, r, at, r.chunkCount-1, uint32(layer), page)
		}
	}
	if r.failCode != effects.OK {
		f.completeRun(e, h, r)
		return
	}
	f.advanceRun(e, h, r)
}

// checkFinish returns an error if a Finish cannot be accepted.
func (f *Source) checkFinish(e *flow.Env, r *run, c *Finish) (effects.Code, *effects.Why) {
	if r == nil {
		return effects.NotFound, noRunReason(c.Request)
	}
	tokens := e.Cfg.Layout.TokenCount()
	whole, rest := max(r.base, c.Tokens/tokens), c.Tokens%tokens
	switch {
	case r.finishSave != 0:
		return effects.Ended, invalidReason("Request", "finishing", "one whose Finish did not come")
	case c.Timeout < 0:
		return effects.Invalid, invalidReason("Timeout", c.Timeout.String(), "0 or more")
	case c.Tokens/tokens < r.base: // All tokens were present at the peer before.
		rest = 0
	}
	for layer, sent := range r.savedEnds {
		if r.failCode == effects.OK && (sent != whole || r.knownEnd() != whole) {
			return effects.Invalid, invalidReason("Tokens", formatCount(c.Tokens), formatCount(sent*tokens)+" to "+formatCount((sent+1)*tokens-1)+
				", of which layer "+formatCount(layer)+" was saved")
		}
	}
	want := 0
	if rest > 0 {
		want = int(f.cfg.Layers)
	}
	if len(c.Pages) != want {
		return effects.Invalid, invalidReason("Pages", formatCount(len(c.Pages)), formatCount(want)+", for the "+formatCount(rest)+
			" tokens behind the last whole chunk")
	}
	for i, page := range c.Pages {
		if code, why := checkPage(e, page, e.Cfg.Layout.TokenBytes()*uint64(rest), i); code != effects.OK {
			return code, why
		}
	}
	if want > 0 {
		if err := protocol.CheckKey(c.Key, e.Cfg.Wire.KeyBytes-len("@1023")); err != nil {
			return effects.Invalid, invalidReason("Key", effects.SanitizeText([]byte(err.Error())), "")
		}
		return e.CheckOwnTenants([][]byte{c.Key})
	}
	return effects.OK, nil
}

// maybeCompleteRun ends a run that has a Finish and nothing queued or in flight.
func (f *Source) maybeCompleteRun(e *flow.Env, h table.Handle, r *run) {
	if r.finishSave != 0 && r.queue.Len() == 0 && r.blocked.Len() == 0 && r.batches.Len() == 0 {
		if r.failCode == effects.OK && !r.hasNoPeer() && r.countUnconfirmed() > 0 {
			panic("BUG: a request has gone, and chunks of it are not whole")
		}
		f.completeRun(e, h, r)
	}
}

// countUnconfirmed returns the number of chunks that are not known to be whole at the peer.
func (r *run) countUnconfirmed() (n uint32) {
	n = r.chunkCount - r.base
	for i := range r.chunks {
		if r.chunks[i].wholeAtPeer {
			n--
		}
	}
	return n
}

// completeRun delivers the outcome of a Finish, notifies the proxy and ends the run.
func (f *Source) completeRun(e *flow.Env, h table.Handle, r *run) {
	at := r.finishSave
	s := f.saves.Get(at)
	missing := uint32(0)
	if !r.hasNoPeer() {
		missing = r.countUnconfirmed()
	}
	out := effects.Deliver{Code: r.failCode, Held: s.itemsLeft > 0, Sent: r.chunkCount - r.base - missing}
	if r.failCode != effects.OK {
		out.Why = r.failureReason()
	} else if r.hasNoPeer() {
		out.Sent, out.Skipped = 0, out.Sent
	}
	e.Tickets.Remove(s.Ticket)
	s.Deliver(&e.Env, out)
	e.Out.Observe(effects.Observe{
		Fact: effects.FactLayersEnded, Code: r.failCode, Count: missing, ID: uint64(s.Ticket), Why: out.Why, Report: r.report(e),
	})
	if s.outlivesRun = s.IsHeld(); s.outlivesRun {
		f.heldFinishes++
	} else {
		f.removeSave(at, s)
	}
	if !r.hasNoPeer() {
		e.Commands.MarkLast(r.request)
		e.Commands.LeaveRequest(&e.Env, r.request, missing, r.failCode)
	}
	f.removeRun(e, h, r)
}

// report returns the times of a run that ends now.
func (r *run) report(e *flow.Env) *effects.Report {
	report := effects.Report{Began: r.since, Trace: r.trace}
	report.Phases[effects.PhaseQueue] = r.finishedAt.Sub(r.since)
	report.Phases[effects.PhaseWire] = e.Now.Sub(r.finishedAt)
	return e.Out.CopyReport(report)
}

// failureReason returns the reason of a failed run for the outcome.
func (r *run) failureReason() *effects.Why {
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
