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
)

// opRule states the requirements of docs/protocol-agent.md for an operation.
type opRule struct {
	target, prefill session.HoldingKind
	targetOptional  bool // the target is optional
	creates         session.HoldingKind
	endsHolding     bool
	// perform gives the rank a command or ends the call. The result is false if the call is refused.
	perform func(h *host, x *hostCall, b *protocol.EngineCall) bool
}

// opRules holds the rules of the operations that truthful engines of this package call.
//
//kvferry:table
var opRules = map[protocol.CallOp]opRule{
	protocol.CallReserve:        {creates: session.Pages, perform: (*host).startReserve},
	protocol.CallGet:            {creates: session.Pages, perform: (*host).startGet},
	protocol.CallSharedGet:      {creates: session.Pages, perform: (*host).startBring},
	protocol.CallFetch:          {perform: (*host).startFetch},
	protocol.CallSharedFetch:    {perform: (*host).startBring},
	protocol.CallContains:       {perform: (*host).startContains},
	protocol.CallLookup:         {perform: (*host).startContains},
	protocol.CallAbandon:        {perform: (*host).startAbandon},
	protocol.CallPut:            {target: session.Pages, perform: (*host).startPut},
	protocol.CallAwaitReturn:    {target: session.Pages, perform: (*host).startAwaitReturn},
	protocol.CallRelease:        {target: session.Pages, endsHolding: true, perform: (*host).startRelease},
	protocol.CallStore:          {target: session.Pages, perform: (*host).startStore},
	protocol.CallShare:          {target: session.Pages, creates: session.Share, perform: (*host).startStore},
	protocol.CallWithdraw:       {target: session.Share, endsHolding: true, perform: (*host).startRelease},
	protocol.CallBeginPrefill:   {creates: session.Prefill, perform: (*host).startLayerCall},
	protocol.CallSaveLayer:      {target: session.Pages, targetOptional: true, prefill: session.Prefill, perform: (*host).startLayerCall},
	protocol.CallPreemptPrefill: {prefill: session.Prefill, perform: (*host).startLayerCall},
	protocol.CallFinishPrefill:  {prefill: session.Prefill, endsHolding: true, perform: (*host).startLayerCall},
	protocol.CallDropPrefill:    {prefill: session.Prefill, endsHolding: true, perform: (*host).startLayerCall},
	protocol.CallRecall:         {target: session.Pages},
	protocol.CallEnd:            {perform: (*host).startEnd},
}

// beginCall gives a call to the rank, after checking that the machine begins each call once, unchanged, and only if the
// engine is allowed to make the call.
func (h *host) beginCall(b session.Begin) {
	w, n := h.state.w, h.node
	w.CountJudged(checkBegunOnce, checkTargets)
	m := h.sentCalls[b.CallRef]
	switch {
	case m.begun:
		w.Fail(checkBegunOnce.Property(), "node %d begins call %d of session %d a second time", n.AsSubject(), b.ID, b.Session)
		return
	case b.Op != m.op || b.Body.Target != m.target || b.Body.Prefill != m.prefill:
		w.Fail(checkBegunOnce.Property(), "node %d begins call %d of session %d with another operation or target", n.AsSubject(), b.ID, b.Session)
		return
	}
	m.begun = true
	x := &hostCall{ref: b.CallRef, op: b.Op, job: m.job, scriptPos: m.scriptPos}
	h.calls[b.CallRef] = x
	r := opRules[b.Op]
	if !h.checkTarget(x, r.target, m.target, r.targetOptional) || !h.checkTarget(x, r.prefill, m.prefill, false) {
		return
	}
	if r.endsHolding && len(x.usedHoldings) > 0 {
		x.holdingToEnd = x.usedHoldings[len(x.usedHoldings)-1]
		x.usedHoldings = nil
		if x.holdingToEnd.users > 0 {
			w.Fail(checkTargets.Property(), "node %d begins to return a holding that a call or a share still uses", n.AsSubject())
			return
		}
		x.holdingToEnd.ending = true
	}
	for _, u := range x.usedHoldings {
		u.users++
	}
	if m.job < 0 && !r.endsHolding || r.perform == nil || !r.perform(h, x, b.Body) {
		h.pendingEnds = append(h.pendingEnds, pendingEnd{x, effects.Invalid})
	}
}

// checkTarget checks that the target of a call is a holding of the engine, and records the use. The result is false if
// the check failed.
func (h *host) checkTarget(x *hostCall, kind session.HoldingKind, id uint64, optional bool) bool {
	if kind == session.NoHolding || optional && id == 0 {
		return true
	}
	target := h.holdings[session.CallRef{Session: x.ref.Session, ID: id}]
	if target == nil || target.kind != kind || target.ending || target.freed {
		h.state.w.Fail(checkTargets.Property(), "node %d begins %v of holding %d, which does not exist, is ending, or has another kind",
			h.node.AsSubject(),
			x.op, id)
		return false
	}
	x.usedHoldings = append(x.usedHoldings, target)
	return true
}

func (h *host) startReserve(x *hostCall, b *protocol.EngineCall) bool {
	if !h.node.IsSender() || b.Count == 0 {
		return false
	}
	if j := &h.state.w.Jobs[x.job]; j.Sender == h.node.ID { // A lying engine may reserve for a job to the engine's own node.
		j.SenderIncarnation = h.incarnation
	}
	h.giveCommand(x, pd.Command{Kind: plan.CommandReserve, Job: x.job, Count: b.Count, Body: &engine.Reserve{Count: b.Count}},
		pd.InfoOf(h.node).Cfg.ReserveTimeout)
	if !h.sentCalls[x.ref].isFalse {
		h.state.w.Jobs[x.job].Batches[0].Reserve = x.ticket
	}
	return true
}

func (h *host) startGet(x *hostCall, b *protocol.EngineCall) bool {
	if !h.node.IsReceiver() {
		return false
	}
	j := &h.state.w.Jobs[x.job]
	wait := min(effects.Duration(b.PatienceNS), pd.InfoOf(h.node).Cfg.GetWaitMax)
	h.giveGet(x, j, wait)
	return true
}

// giveGet gives the rank a get command for the chunks of a job.
func (h *host) giveGet(x *hostCall, j *pd.Job, wait effects.Duration) {
	keys := j.Keys
	if j.Layers > 0 {
		keys = j.ChunkKeys
	}
	h.giveCommand(x, pd.Command{Kind: plan.CommandGet, Job: j.Index, Body: &engine.Get{Request: j.Name, Keys: keys, Wait: wait,
		Layered: j.Layers > 0}}, wait)
}

func (h *host) startContains(x *hostCall, _ *protocol.EngineCall) bool {
	if !h.node.IsReceiver() || h.state.w.Jobs[x.job].Layers > 0 {
		return false
	}
	h.giveCommand(x, pd.Command{Kind: plan.CommandContains, Job: x.job, Body: &engine.Contains{Keys: h.state.w.Jobs[x.job].Keys}}, 0)
	return true
}

func (h *host) startAbandon(x *hostCall, _ *protocol.EngineCall) bool {
	if !h.node.IsReceiver() {
		return false
	}
	h.giveCommand(x, pd.Command{Kind: plan.CommandAbandon, Job: x.job, Body: &engine.Abandon{Request: h.state.w.Jobs[x.job].Name}}, 0)
	return true
}

// startFetch makes the rank read chunks that the sender keeps in place; the rank shows the chunks to the engine.
func (h *host) startFetch(x *hostCall, b *protocol.EngineCall) bool {
	if !h.node.KeepsOffers {
		return false
	}
	h.giveFetch(x, len(h.state.w.Jobs[x.job].Keys), effects.Duration(b.PatienceNS))
	return true
}

// giveFetch gives the rank a fetch command for the first chunks of a job.
func (h *host) giveFetch(x *hostCall, count int, timeout effects.Duration) {
	j := &h.state.w.Jobs[x.job]
	h.giveCommand(x, pd.Command{Kind: plan.CommandFetch, Job: x.job, Count: uint32(count), Body: &engine.Fetch{Request: j.Name,
		Keys: j.Keys[:count], Timeout: timeout}}, min(timeout, pd.InfoOf(h.node).Cfg.FetchTimeout))
}

// startBring gets chunks that another node shares. The outcome continues the call.
func (h *host) startBring(x *hostCall, _ *protocol.EngineCall) bool {
	j := &h.state.w.Jobs[x.job]
	if !j.Flags[p2p.Flow.Flag] || p2p.IsDelayed(h.node, j) != (x.op == protocol.CallSharedFetch) {
		return false
	}
	h.giveCommand(x, pd.Command{Kind: p2p.WantBring, Job: x.job, Body: p2p.NewBring(h.state.w, h.node, j)}, pd.InfoOf(h.node).Cfg.BringTimeout)
	return true
}

func (h *host) startPut(x *hostCall, _ *protocol.EngineCall) bool {
	w, cfg := h.state.w, &pd.InfoOf(h.node).Cfg
	j := &w.Jobs[x.job]
	reserved := &w.Commands[x.usedHoldings[0].ticket-1]
	if reserved.Kind != plan.CommandReserve || reserved.Job != x.job || j.Batches[0].Put != 0 {
		return false
	}
	r := w.Nodes[j.Receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	j.OpenPuts++
	j.Batches[0].ReceiverIncarnation, j.Batches[0].Reserve = r.Incarnation, x.usedHoldings[0].ticket
	h.giveCommand(x, pd.Command{Kind: plan.CommandPut, Job: x.job, Pages: reserved.Pages, Body: &engine.Put{
		Peer:    engine.Peer{Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port},
		Request: j.Name, Keys: j.Keys, Pages: reserved.Pages, Layout: cfg.Layout, LastChunkTokens: j.TokensOf(len(j.Keys) - 1),
		Last: true,
	}}, cfg.PutTimeout)
	w.Jobs[x.job].Batches[0].Put = x.ticket
	return true
}

// startStore transfers the pages of an engine that hold whole chunks to the cache, or shares them.
func (h *host) startStore(x *hostCall, _ *protocol.EngineCall) bool {
	w := h.state.w
	j := &w.Jobs[x.job]
	pages := x.usedHoldings[0]
	c := w.Commands[pages.ticket-1]
	if !pd.InfoOf(h.node).Cfg.Shares || !h.node.IsCache || c.Kind != plan.CommandReserve || c.Job != x.job {
		return false
	}
	body := engine.Store{Reserved: pages.ticket}
	for i, p := range c.Pages {
		if p.Length == h.node.Pool.PageBytes {
			body.Keys, body.Pages = append(body.Keys, j.Keys[i]), append(body.Pages, p)
		}
	}
	if len(body.Keys) == 0 {
		return false
	}
	given := pd.Command{Kind: p2p.WantStore, Job: x.job, Target: pages.ticket, Body: &body, Pages: body.Pages}
	if x.op == protocol.CallShare {
		share := engine.Share(body)
		given.Kind, given.Body = p2p.WantShare, &share
	}
	h.giveCommand(x, given, 0)
	return true
}

// startLayerCall carries out the calls of a layerwise push.
func (h *host) startLayerCall(x *hostCall, _ *protocol.EngineCall) bool {
	if x.job < 0 || !h.state.w.Jobs[x.job].Flags[layerwise.Flow.Flag] || !h.node.IsSender() {
		return false
	}
	j := &h.state.w.Jobs[x.job]
	script, run := layerwise.ScriptOf(h.state.w, j), effects.Ticket(0)
	for _, u := range append(x.usedHoldings, x.holdingToEnd) {
		if u != nil && u.kind == session.Prefill {
			run = u.ticket
		}
	}
	pages := h.findHolding(j.Batches[0].Reserve)
	if pages == nil || x.op != protocol.CallBeginPrefill && h.state.w.Commands[run-1].Job != x.job {
		return false
	}
	var c pd.Command
	switch x.op { //nolint:exhaustive // The other operations have no prefill.
	case protocol.CallBeginPrefill:
		c = script.Begin()
	case protocol.CallSaveLayer:
		c = script.Save(x.scriptPos, run)
	case protocol.CallPreemptPrefill:
		c = script.Preempt(run)
	case protocol.CallFinishPrefill:
		if x.holdingToEnd.layerRefused { // The agent refuses this itself.
			return false
		}
		c = script.Finish(run)
	default:
		c = script.Drop(run)
	}
	c.Job, c.Target = x.job, j.Batches[0].Reserve
	if pages.pendingReturns++; len(c.Pages) == 0 {
		pages.pendingReturns--
	}
	h.giveCommand(x, c, layerwise.CommandTimeout(h.node, &c))
	return true
}

// findHolding returns the holding that a command of the rank produced, or nil if no engine has such a holding.
func (h *host) findHolding(t effects.Ticket) *holding {
	for _, x := range h.holdings {
		if x.ticket == t {
			return x
		}
	}
	return nil
}

// startAwaitReturn waits until no transfer reads the pages any more.
func (h *host) startAwaitReturn(x *hostCall, _ *protocol.EngineCall) bool {
	if x.waitsForPages = x.usedHoldings[0].pendingReturns > 0; !x.waitsForPages {
		h.pendingEnds = append(h.pendingEnds, pendingEnd{x, effects.OK})
	}
	return true
}

// startRelease gives a holding of an engine back. At times the agent refuses, and the engine still has the holding.
func (h *host) startRelease(x *hostCall, _ *protocol.EngineCall) bool {
	if h.state.nextDraw().ChanceIfRandom(60) && !h.state.w.Healed {
		h.pendingEnds = append(h.pendingEnds, pendingEnd{x, effects.TooMany})
		return true
	}
	if x.waitsForPages = x.holdingToEnd.pendingReturns > 0; !x.waitsForPages {
		h.returnHolding(x)
	}
	return true
}

// freeHolding gives back a holding that no engine holds any more.
func (h *host) freeHolding(f session.Free) {
	target := h.holdings[session.CallRef{Session: f.Session, ID: f.Holding}]
	if target == nil || target.freed || target.kind != f.Kind || target.users > 0 {
		h.state.w.Fail(checkTargets.Property(), "node %d returns a holding that was returned already, is in use, or has another kind",
			h.node.AsSubject())
		return
	}
	target.freed, target.ending = true, true
	x := &hostCall{ref: target.call, isFree: true, holdingToEnd: target, job: h.state.w.Commands[target.ticket-1].Job}
	if x.waitsForPages = target.pendingReturns > 0; x.waitsForPages {
		h.pendingFrees = append(h.pendingFrees, x)
		return
	}
	h.returnHolding(x)
}

// returnHolding gives the result of a call back to the rank.
func (h *host) returnHolding(x *hostCall) {
	w, t := h.state.w, x.holdingToEnd.ticket
	created := w.Commands[t-1]
	c := pd.Command{Kind: plan.CommandRelease, Target: t, Body: &engine.Release{Reserved: t}}
	timeout := effects.Duration(0)
	switch created.Kind { //nolint:exhaustive // The other commands use pages of a Reserve.
	case plan.CommandGet:
		c.Kind, c.Body = plan.CommandUnpin, &engine.Unpin{Got: t}
	case p2p.WantShare:
		c = pd.Command{Kind: p2p.WantWithdraw, Job: created.Job, Target: t, Body: &engine.Withdraw{Shared: t}, Pages: created.Pages}
		timeout = p2p.WithdrawTimeout(h.node)
	case layerwise.WantBegin:
		script := layerwise.ScriptOf(w, &w.Jobs[created.Job])
		c = script.Drop(t)
		c.Job, c.Target = created.Job, created.Target
	}
	if h.returnedTickets[t] = created.Kind != p2p.WantShare; h.returnedTickets[t] && created.Kind != layerwise.WantBegin {
		pd.OnPagesReleased.Report(&w.Panel, h.node.ID, pd.PagesReleased{Node: h.node, Ticket: t})
	}
	h.giveCommand(x, c, timeout)
}

// giveCommand gives the rank a command on behalf of a call, or to give a holding back.
func (h *host) giveCommand(x *hostCall, c pd.Command, timeout effects.Duration) {
	c.Attached = true
	x.ticket = h.state.w.GiveCommand(h.node, c, timeout)
	h.callByTicket[x.ticket] = x
}

// abortCall makes a call end early.
func (h *host) abortCall(x *hostCall) {
	x.aborted = true
	x.heldAborted = x.heldAborted || x.answered
	switch {
	case x.waitsForPages && x.op == protocol.CallAwaitReturn:
		x.waitsForPages = false
		h.pendingEnds = append(h.pendingEnds, pendingEnd{x, effects.Cancelled})
	case x.ticket != 0 && (x.holdingToEnd == nil || x.op == protocol.CallFinishPrefill || x.op == protocol.CallWithdraw):
		if c := &h.state.w.Commands[x.ticket-1]; !c.Finished || c.HoldsMemory {
			h.state.w.AbortCommand(h.node, x.ticket)
		}
	}
	if x.show != nil {
		h.endShow(x, effects.Faulted)
	}
}
