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

// givesFreePages reports whether a command gives the engine pages to fill.
func givesFreePages(c *pd.Command) bool { return c.Kind == plan.CommandReserve }

// handleOutcome handles the outcome of a command.
func handleOutcome(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	if !c.Attached || w.Failure != nil {
		return
	}
	h := stateOf(w).hostOf(n)
	x, want := h.callByTicket[e.Ticket], c.Kind
	if !e.Held {
		delete(h.callByTicket, e.Ticket)
	}
	if want == layerwise.WantSave || want == layerwise.WantFinish {
		if !e.Held { // The pages were not sent.
			layerwise.ReportReturned(w, n, c)
			h.recordPagesReturned(e.Ticket)
		}
		if w.Failure != nil {
			return
		}
	}
	switch {
	case x.isFree:
		h.finishReturn(x, e)
		return
	case want == p2p.WantBring && e.Hits > 0 && x.op == protocol.CallSharedFetch && x.aborted:
		// The abort arrived after the rank had found all chunks. No fetch begins, so the chunks stay with their owner.
		h.endCall(x, &protocol.EngineAnswer{Code: uint32(effects.Cancelled)}, false)
		return
	case want == p2p.WantBring && e.Hits > 0:
		h.continueBring(x, e)
		return
	case want == plan.CommandFetch && e.Code != effects.OK && e.Begun:
		j := &w.Jobs[x.job]
		w.GiveCommand(n, pd.Command{Kind: pd.WantGiveUp, Job: x.job, Count: uint32(len(j.Keys)), Attached: true,
			Body: &engine.GiveUp{Request: j.Name, Keys: j.Keys}}, 0)
	}
	a := &protocol.EngineAnswer{ID: x.ref.ID, Code: uint32(e.Code), Hits: e.Hits, Sent: e.Sent, Skipped: e.Skipped}
	targetRemains := x.holdingToEnd != nil && e.Code != effects.OK
	switch want { //nolint:exhaustive // The other commands produce no holding.
	case plan.CommandReserve, plan.CommandGet:
		for _, p := range e.Pages {
			a.Pages, a.Lengths = append(a.Pages, uint64(p.Index)), append(a.Lengths, uint64(p.Length))
		}
	case p2p.WantStore:
		if e.Code == effects.OK {
			pd.OnPagesStored.Report(&w.Panel, n.ID, pd.PagesStored{Node: n, Command: &w.Commands[e.Ticket-1]})
		}
	case p2p.WantShare:
		if e.Code == effects.OK {
			pd.OnPagesShared.Report(&w.Panel, n.ID, pd.PagesShared{Node: n, Command: &w.Commands[e.Ticket-1]})
		}
	case p2p.WantWithdraw:
		reportWithdrawn(w, n, e)
	case layerwise.WantFinish, layerwise.WantStop:
		targetRemains = targetRemains && (e.Code == effects.TooMany || e.Code == effects.Invalid)
	case plan.CommandFetch:
		if e.Held { // The answer is sent once the engine has read the shown chunks.
			x.lateAnswer = a
			return
		}
	}
	a.Held = e.Held && want != layerwise.WantSave
	h.endCall(x, a, targetRemains)
}

// endCall reports the outcome of a call to the machine. If targetRemains is set, the holding that the call was to end
// remains.
func (h *host) endCall(x *hostCall, a *protocol.EngineAnswer, targetRemains bool) {
	a.ID = x.ref.ID
	if x.op == protocol.CallSaveLayer {
		x.usedHoldings[len(x.usedHoldings)-1].layerRefused = effects.Code(a.Code) == effects.TooMany
	}
	if x.answered, h.sentCalls[x.ref].ended = true, true; !a.Held {
		h.removeCall(x)
	}
	creates := opRules[x.op].creates
	created := creates != session.NoHolding && (len(a.Pages) > 0 || a.Code == 0 && creates != session.Pages)
	if created {
		held := &holding{call: x.ref, kind: creates, ticket: x.ticket}
		if creates == session.Share {
			held.pagesOf = h.holdings[session.CallRef{Session: x.ref.Session, ID: h.sentCalls[x.ref].target}]
			held.pagesOf.users, held.pagesOf.shareCount = held.pagesOf.users+1, held.pagesOf.shareCount+1
		}
		h.holdings[x.ref] = held
	}
	if x.holdingToEnd != nil {
		x.holdingToEnd.ending = false
		if !targetRemains {
			h.removeHolding(x.holdingToEnd)
		}
	}
	h.stepMachine(func(out *session.Effects) { h.machine.OnCallEnded(x.ref, a, created, targetRemains, out) })
	if held := h.holdings[x.ref]; held != nil && x.abandoned && !held.freed && h.state.w.Failure == nil {
		h.state.w.Fail(checkAbandoned.Property(), "node %d keeps the result of call %d, and no engine knows of it", h.node.AsSubject(), x.ref.ID)
	}
	s := h.sessions[x.ref.Session]
	if isUnwanted := x.abandoned || s == nil || s.left; a.Held && isUnwanted && h.state.w.Failure == nil {
		if h.state.w.CountJudged(checkAbandoned); !x.isAborted() {
			h.state.w.Fail(checkAbandoned.Property(), "node %d lets call %d keep its memory, and no engine waits for the call", h.node.AsSubject(),
				x.ref.ID)
		}
	}
	if x.op == protocol.CallDetach {
		return
	}
	h.continueWaiting()
}

// removeCall removes a call that is finished, and the uses of holdings by the call.
func (h *host) removeCall(x *hostCall) {
	delete(h.calls, x.ref)
	for _, u := range x.usedHoldings {
		u.users--
	}
	x.usedHoldings = nil
}

// removeHolding removes a holding that has ended.
func (h *host) removeHolding(x *holding) {
	if delete(h.holdings, x.call); x.pagesOf != nil {
		x.pagesOf.users, x.pagesOf.shareCount = x.pagesOf.users-1, x.pagesOf.shareCount-1
	}
}

// finishReturn handles the outcome of giving a holding back without a call. The rank must have accepted the
// holding, or must have had the pages already.
func (h *host) finishReturn(x *hostCall, e *effects.Deliver) {
	if e.Code != effects.OK && e.Code != effects.NotFound {
		h.state.w.Fail(checkLeftovers.Property(), "the rank of node %d does not take back the result of call %d: %s", h.node.AsSubject(),
			x.ref.ID, e.Code)
		return
	}
	if x.holdingToEnd.kind == session.Share {
		reportWithdrawn(h.state.w, h.node, e)
	}
	if h.state.w.Failure != nil {
		return
	}
	h.removeHolding(x.holdingToEnd)
	h.stepMachine(func(out *session.Effects) { h.machine.OnHoldingFreed(x.ref.Session, x.ref.ID, out) })
}

// reportWithdrawn records that shared pages belong to the engine alone again.
func reportWithdrawn(w *pd.Cluster, n *world.Node, e *effects.Deliver) {
	if c := &w.Commands[e.Ticket-1]; e.Code == effects.OK {
		pd.OnPagesWithdrawn.Report(&w.Panel, n.ID, pd.PagesWithdrawn{Node: n, Command: c})
		w.Commands[c.Target-1].Released = true
	}
}

// continueBring continues after another node has provided chunks. For CallSharedGet the engine gets the chunks at once,
// so that an abort has no effect; otherwise the engine fetches the chunks.
func (h *host) continueBring(x *hostCall, e *effects.Deliver) {
	w := h.state.w
	j := &w.Jobs[x.job]
	if x.op == protocol.CallSharedGet {
		h.giveGet(x, j, 0)
		return
	}
	if pd.OnKeepOutcome.Report(&w.Panel, h.node.ID,
		pd.KeepOutcome{Node: h.node, Effect: e, Command: &w.Commands[e.Ticket-1]}); w.Failure == nil {
		h.giveFetch(x, int(e.Hits), pd.InfoOf(h.node).Cfg.FetchTimeout)
	}
}

// handleReturn handles the return of the memory of a command that the rank held.
func handleReturn(w *pd.Cluster, n *world.Node, c *pd.Command) {
	if !c.Attached || w.Failure != nil {
		return
	}
	h := stateOf(w).hostOf(n)
	t := ticketOf(w, c)
	x, want := h.callByTicket[t], c.Kind
	delete(h.callByTicket, t)
	switch want { //nolint:exhaustive // The other commands are puts.
	case layerwise.WantSave, layerwise.WantFinish:
		if layerwise.ReportReturned(w, n, c); w.Failure != nil {
			return
		}
		h.recordPagesReturned(t)
		if want == layerwise.WantSave {
			h.continueWaiting()
			return
		}
	case plan.CommandFetch:
		h.endCall(x, x.lateAnswer, false)
		return
	}
	h.removeCall(x)
	h.stepMachine(func(out *session.Effects) { h.machine.OnMemoryReturned(x.ref, out) })
	h.continueWaiting()
}

// ticketOf returns the ticket of a command.
func ticketOf(w *pd.Cluster, c *pd.Command) effects.Ticket {
	for t := range w.Commands {
		if &w.Commands[t] == c {
			return effects.Ticket(t + 1)
		}
	}
	panic("BUG: a command is not in the list of its world")
}

// recordPagesReturned records that the pages of a layer command are returned.
func (h *host) recordPagesReturned(t effects.Ticket) {
	c := &h.state.w.Commands[t-1]
	if pages := h.findHolding(c.Target); pages != nil && len(c.Pages) > 0 {
		pages.pendingReturns--
	}
}

// continueWaiting continues the calls and the releases that waited for the return of pages.
func (h *host) continueWaiting() {
	for _, x := range h.takeReady() {
		if x.waitsForPages = false; x.op == protocol.CallAwaitReturn {
			h.endCall(x, &protocol.EngineAnswer{}, false)
			return // The end of the call continues the remaining calls.
		}
		h.returnHolding(x)
	}
}

// takeReady removes the pending releases whose pages are returned, and returns these releases and the calls that can
// continue, in order.
func (h *host) takeReady() (all []*hostCall) {
	waiting := h.pendingFrees[:0]
	for _, x := range h.pendingFrees {
		if x.holdingToEnd.pendingReturns > 0 {
			waiting = append(waiting, x)
			continue
		}
		all = append(all, x)
	}
	h.pendingFrees = waiting
	for _, x := range sortCalls(h.calls) {
		if x.waitsForPages &&
			(x.holdingToEnd != nil && x.holdingToEnd.pendingReturns == 0 || x.holdingToEnd == nil && x.usedHoldings[0].pendingReturns == 0) {
			all = append(all, x)
		}
	}
	return all
}

// showChunks shows chunks of a fetch to the engine.
func showChunks(w *pd.Cluster, n *world.Node, e *effects.Scatter) {
	h := stateOf(w).hostOf(n)
	x := h.callByTicket[e.Ticket]
	pages, lengths := make([]uint64, len(e.Pages)), make([]uint64, len(e.Pages))
	for i, p := range e.Pages {
		pages[i], lengths[i] = uint64(p.Index), uint64(p.Length)
	}
	x.show = &pendingShow{e.Corr, e.First, len(e.Pages)}
	if x.aborted {
		h.endShow(x, effects.Faulted)
		return
	}
	h.stepMachine(func(out *session.Effects) { h.machine.ShowChunks(x.ref, int(e.First), pages, lengths, out) })
}

// endShow ends the showing of chunks and reports the outcome to the rank.
func (h *host) endShow(x *hostCall, code effects.Code) {
	corr := x.show.corr
	x.show = nil
	h.state.w.QueueForNode(h.node, 0, world.Delivery{Kind: world.KindScattered, A: uint64(corr), B: uint64(x.ticket), C: uint64(code)})
}

// handleShown handles the engine's confirmation of a showing, and checks that the engine has really read the chunks.
func (h *host) handleShown(s session.ShowResult) {
	x := h.calls[s.CallRef]
	if x == nil || x.show == nil {
		return
	}
	code := effects.OK
	if s.Code != effects.OK {
		code = effects.Faulted
	}
	e := h.state.engines[h.sessions[s.Session].engine]
	h.state.w.CountJudged(checkShown)
	if code == effects.OK && !e.isLiar && h.sentCalls[s.CallRef].chunksRead < x.show.firstChunk+uint32(x.show.pageCount) {
		h.state.w.Fail(checkShown.Property(),
			"node %d believes that an engine has read the chunks from %d on for call %d, and the engine has not",
			h.node.AsSubject(), x.show.firstChunk, s.ID)
		return
	}
	h.endShow(x, code)
}
