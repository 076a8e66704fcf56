package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/session"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/layerwise"
	"github.com/kvferry/kvferry/sim/systems/p2p"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The outcomes of calls.

// givesPages reports whether a command gives the engine pages to fill.
func givesPages(c *pd.Command) bool { return c.Want == plan.WantReserve }

// ended handles the outcome of a command.
func ended(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	if !c.Attached || w.Failure != nil {
		return
	}
	h := of(w).host(n)
	x, want := h.tickets[e.Ticket], c.Want
	if !e.Held {
		delete(h.tickets, e.Ticket)
	}
	if want == layerwise.Saves || want == layerwise.Finishes {
		if !e.Held { // The pages were not sent.
			layerwise.Back(w, n, c)
			h.isBack(e.Ticket)
		}
		if w.Failure != nil {
			return
		}
	}
	switch {
	case x.free:
		h.gaveBack(x, e)
		return
	case want == p2p.Brings && e.Hits > 0 && x.op == protocol.CallSharedFetch && x.aborted:
		// The abort arrived after the rank had found all chunks. No fetch begins, so the chunks stay with their owner.
		h.end(x, &protocol.EngineAnswer{Code: uint32(effects.Cancelled)}, false)
		return
	case want == p2p.Brings && e.Hits > 0:
		h.brought(x, e)
		return
	case want == plan.WantFetch && e.Code != effects.OK && e.Begun:
		j := &w.Jobs[x.job]
		w.Give(n, pd.Command{Want: pd.WantGiveUp, Job: x.job, Count: uint32(len(j.Keys)), Attached: true,
			Body: &engine.GiveUp{Request: j.Name, Keys: j.Keys}}, 0)
	}
	a := &protocol.EngineAnswer{ID: x.call.ID, Code: uint32(e.Code), Hits: e.Hits, Sent: e.Sent, Skipped: e.Skipped}
	stands := x.ends != nil && e.Code != effects.OK
	switch want { //nolint:exhaustive // The other commands produce no holding.
	case plan.WantReserve, plan.WantGet:
		for _, p := range e.Pages {
			a.Pages, a.Lengths = append(a.Pages, uint64(p.Index)), append(a.Lengths, uint64(p.Length))
		}
	case p2p.Stores:
		if e.Code == effects.OK {
			pd.OnStored.Report(&w.Panel, n.ID, pd.Stored{Node: n, Command: &w.Commands[e.Ticket-1]})
		}
	case p2p.Shares:
		if e.Code == effects.OK {
			pd.OnShared.Report(&w.Panel, n.ID, pd.Shared{Node: n, Command: &w.Commands[e.Ticket-1]})
		}
	case p2p.Withdraws:
		withdrawn(w, n, e)
	case layerwise.Finishes, layerwise.Stops:
		stands = stands && (e.Code == effects.TooMany || e.Code == effects.Invalid)
	case plan.WantFetch:
		if e.Held { // The answer is sent once the engine has read the shown chunks.
			x.late = a
			return
		}
	}
	a.Held = e.Held && want != layerwise.Saves
	h.end(x, a, stands)
}

// end reports the outcome of a call to the machine. If stands is set, the holding that the call was to end remains.
func (h *host) end(x *work, a *protocol.EngineAnswer, stands bool) {
	a.ID = x.call.ID
	if x.op == protocol.CallSaveLayer {
		x.uses[len(x.uses)-1].short = effects.Code(a.Code) == effects.TooMany
	}
	if x.answered, h.said[x.call].ended = true, true; !a.Held {
		h.over(x)
	}
	brings := rules[x.op].brings
	brought := brings != session.NoHolding && (len(a.Pages) > 0 || a.Code == 0 && brings != session.Pages)
	if brought {
		held := &holding{at: x.call, kind: brings, t: x.t}
		if brings == session.Share {
			held.of = h.holds[session.CallRef{Session: x.call.Session, ID: h.said[x.call].target}]
			held.of.uses, held.of.shares = held.of.uses+1, held.of.shares+1
		}
		h.holds[x.call] = held
	}
	if x.ends != nil {
		x.ends.ending = false
		if !stands {
			h.drop(x.ends)
		}
	}
	h.step(func(out *session.Effects) { h.machine.OnCallEnded(x.call, a, brought, stands, out) })
	if held := h.holds[x.call]; held != nil && x.unwanted && !held.freed && h.a.w.Failure == nil {
		h.a.w.Fail(checkUnwanted.Property(), "node %d holds what call %d brought, and nobody knows it", h.n.It(), x.call.ID)
	}
	if x.op == protocol.CallDetach {
		return
	}
	h.onward()
}

// over removes a call that is finished, and the uses of holdings by the call.
func (h *host) over(x *work) {
	delete(h.works, x.call)
	for _, u := range x.uses {
		u.uses--
	}
	x.uses = nil
}

// drop removes a holding that has ended.
func (h *host) drop(x *holding) {
	if delete(h.holds, x.at); x.of != nil {
		x.of.uses, x.of.shares = x.of.uses-1, x.of.shares-1
	}
}

// gaveBack handles the outcome of giving a holding back without a call. The rank must have accepted the
// holding, or must have had the pages already.
func (h *host) gaveBack(x *work, e *effects.Deliver) {
	if e.Code != effects.OK && e.Code != effects.NotFound {
		h.a.w.Fail(checkLeft.Property(), "node %d does not take back what call %d brought: %s", h.n.It(), x.call.ID, e.Code)
		return
	}
	if x.ends.kind == session.Share {
		withdrawn(h.a.w, h.n, e)
	}
	if h.a.w.Failure != nil {
		return
	}
	h.drop(x.ends)
	h.step(func(out *session.Effects) { h.machine.OnHoldingFreed(x.call.Session, x.call.ID, out) })
}

// withdrawn records that shared pages belong to the engine alone again.
func withdrawn(w *pd.Cluster, n *world.Node, e *effects.Deliver) {
	if c := &w.Commands[e.Ticket-1]; e.Code == effects.OK {
		pd.OnWithdrawn.Report(&w.Panel, n.ID, pd.Withdrawn{Node: n, Command: c})
		w.Commands[c.Target-1].Released = true
	}
}

// brought continues after another node has provided chunks. For CallSharedGet the engine gets the chunks at once, so
// that an abort has no effect; otherwise the engine fetches the chunks.
func (h *host) brought(x *work, e *effects.Deliver) {
	w := h.a.w
	j := &w.Jobs[x.job]
	if x.op == protocol.CallSharedGet {
		h.gives(x, j, 0)
		return
	}
	if pd.OnKept.Report(&w.Panel, h.n.ID, pd.Kept{Node: h.n, Effect: e, Command: &w.Commands[e.Ticket-1]}); w.Failure == nil {
		h.fetches(x, int(e.Hits), pd.Its(h.n).Cfg.FetchTimeout)
	}
}

// returned handles the return of the memory of a command that the rank held.
func returned(w *pd.Cluster, n *world.Node, c *pd.Command) {
	if !c.Attached || w.Failure != nil {
		return
	}
	h := of(w).host(n)
	t := ticketOf(w, c)
	x, want := h.tickets[t], c.Want
	delete(h.tickets, t)
	switch want { //nolint:exhaustive // The other commands are puts.
	case layerwise.Saves, layerwise.Finishes:
		if layerwise.Back(w, n, c); w.Failure != nil {
			return
		}
		h.isBack(t)
		if want == layerwise.Saves {
			h.onward()
			return
		}
	case plan.WantFetch:
		h.end(x, x.late, false)
		return
	}
	h.over(x)
	h.step(func(out *session.Effects) { h.machine.OnMemoryReturned(x.call, out) })
	h.onward()
}

// ticketOf returns the ticket of a command.
func ticketOf(w *pd.Cluster, c *pd.Command) effects.Ticket {
	for t := range w.Commands {
		if &w.Commands[t] == c {
			return effects.Ticket(t + 1)
		}
	}
	panic("BUG: a command is none of its world's")
}

// isBack records that the pages of a layer command are returned.
func (h *host) isBack(t effects.Ticket) {
	c := &h.a.w.Commands[t-1]
	if pages := h.holdingOf(c.Target); pages != nil && len(c.Pages) > 0 {
		pages.lots--
	}
}

// onward continues the calls and the releases that waited for the return of pages.
func (h *host) onward() {
	for _, x := range h.waiting() {
		if x.waits = false; x.op == protocol.CallAwaitReturn {
			h.end(x, &protocol.EngineAnswer{}, false)
			return // The end of the call continues the remaining calls.
		}
		h.giveBack(x)
	}
}

// waiting removes the pending releases whose pages are returned, and returns these releases and the calls that can
// continue, in order.
func (h *host) waiting() (all []*work) {
	rest := h.frees[:0]
	for _, x := range h.frees {
		if x.ends.lots > 0 {
			rest = append(rest, x)
			continue
		}
		all = append(all, x)
	}
	h.frees = rest
	for _, x := range sorted(h.works) {
		if x.waits &&
			(x.ends != nil && x.ends.lots == 0 || x.ends == nil && x.uses[0].lots == 0) {
			all = append(all, x)
		}
	}
	return all
}

// scatter shows chunks of a fetch to the engine.
func scatter(w *pd.Cluster, n *world.Node, e *effects.Scatter) {
	h := of(w).host(n)
	x := h.tickets[e.Ticket]
	pages, lengths := make([]uint64, len(e.Pages)), make([]uint64, len(e.Pages))
	for i, p := range e.Pages {
		pages[i], lengths[i] = uint64(p.Index), uint64(p.Length)
	}
	x.show = &showing{e.Corr, e.First, len(e.Pages)}
	if x.aborted {
		h.scattered(x, effects.Faulted)
		return
	}
	h.step(func(out *session.Effects) { h.machine.ShowChunks(x.call, int(e.First), pages, lengths, out) })
}

// scattered ends the showing of chunks and reports the outcome to the rank.
func (h *host) scattered(x *work, code effects.Code) {
	corr := x.show.corr
	x.show = nil
	h.a.w.ForNode(h.n, 0, world.Delivery{Kind: world.KindScattered, A: uint64(corr), B: uint64(x.t), C: uint64(code)})
}

// shown handles the engine's confirmation of a showing, and checks that the engine has really read the chunks.
func (h *host) shown(s session.ShowResult) {
	x := h.works[s.CallRef]
	if x == nil || x.show == nil {
		return
	}
	code := effects.OK
	if s.Code != effects.OK {
		code = effects.Faulted
	}
	e := h.a.engines[h.sessions[s.Session].engine]
	pd.Judged(h.a.w, checkShown)
	if code == effects.OK && !e.lies && h.said[s.CallRef].read < x.show.first+uint32(x.show.pages) {
		h.a.w.Fail(checkShown.Property(), "node %d believes that an engine has read chunks from %d on by call %d",
			h.n.It(), x.show.first, s.ID)
		return
	}
	h.scattered(x, code)
}
