package push

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/outcomes"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

var _ flow.Target = (*Target)(nil)

// A Target serves senders that push: it answers allocation requests, commits and aborts. What it granted is
// recorded in the landings, and requests that wait for pages in the allocation queue (Pending). The Target has no
// rows of its own.
type Target struct {
	cfg       TargetConfig           `snap:"share"`
	message   protocol.AllocRequest  `snap:"scratch"`
	reply     protocol.AllocResponse `snap:"scratch"`
	arrivedAt effects.Time           `snap:"scratch"` // when the message arrived first
}

// TargetConfig is the configuration of a Target.
type TargetConfig struct {
	GrantSettings
	WholeChunks bool // a layerwise request must name all layers of each chunk
}

// Recycle returns a Target that has granted nothing. The memory of t is reused, so t must not be used afterwards.
func (t *Target) Recycle(cfg TargetConfig) Target {
	return Target{cfg: cfg, message: t.message, reply: t.reply}
}

// Step handles the landing and the revocation of a grant, and the end of a comparison of its pages.
func (t *Target) Step(e *flow.Env, ref kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Landed:
		t.onLanded(e, ev)
	case *effects.Revoked:
		e.Landings.OnRevoked(&e.Env, &e.Store, ev.Grant)
	case *effects.Verified:
		t.onVerified(e, e.Landings.At(ref.Subject.Slot()), ev)
	default:
		kernel.PanicUnexpected("the push target")
	}
}

// ServedTag reports that the Target takes each message of the alloc channel that no other flow takes by tag.
func (t *Target) ServedTag(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagNone, c == effects.ChannelAlloc
}

// HandleMessage takes an AllocRequest.
func (t *Target) HandleMessage(e *flow.Env, x *effects.Received) { t.handleAllocRequest(e, x) }

// OnTimer ends a grant when its lease is over.
func (t *Target) OnTimer(e *flow.Env, ref kernel.Ref) {
	e.Landings.ExpireGrant(&e.Env, &e.Store, e.Landings.OnTimer(&e.Env, ref.Subject.Slot()))
}

// OnSignal handles that a waiting request can no longer be served, or that this rank ends a grant early.
func (t *Target) OnSignal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	switch s.Kind {
	case flow.RequestRefused:
		t.refuseWaiting(e, ref.Subject, s.Code, s.Why)
	case flow.LandingEnded:
		e.Landings.RevokeGrant(&e.Env, e.Landings.At(ref.Subject.Slot()))
	case flow.PeerChanged, flow.LeaseEnded:
		kernel.PanicUnexpected("the push target")
	}
}

// AbortCommand returns false: no command of the engine is open in this flow.
func (t *Target) AbortCommand(*flow.Env, kernel.Ref) bool { return false }

// CountUnfinished returns 0: all that a drain waits for is counted by the shared tables.
func (t *Target) CountUnfinished(*flow.Env) int { return 0 }

// onLanded handles the report of a fenced plane that pages are whole. The grant id and the peer must match a
// grant in force (M2).
func (t *Target) onLanded(e *flow.Env, ev *effects.Landed) {
	x := e.Landings.Find(ev.Grant)
	if x == nil || x.Peer != ev.Peer {
		landing.RefuseUnknown(&e.Env, ev)
		return
	}
	e.Landings.OnLanded(&e.Env, &e.Store, x, ev, len(ev.Pages) > 0 && e.IsLandingWanted(x))
}

// handleAllocRequest handles an AllocRequest: it refuses the request, repeats an earlier reply, grants pages, or puts
// the request into the allocation queue.
func (t *Target) handleAllocRequest(e *flow.Env, ev *effects.Received) {
	from := flow.Sender{Request: ev.Request, Conn: ev.Conn}
	m := &t.message
	t.arrivedAt = e.Now
	if err := m.Decode(ev.Body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(flow.Marks.AllocMalformed)
		e.ReportMalformed(from, effects.StageAsk, err, ev.Body)
		t.refuseRequest(e, from, 0, effects.Malformed, nil)
		return
	}
	from.Extended = m.HasExt
	if why := link.CheckRole(&e.Env, ev); why != nil {
		t.refuseRequest(e, from, len(m.Keys), effects.Forbidden, why)
		return
	}
	if why := e.CheckTenants(ev, m.Keys); why != nil {
		t.refuseRequest(e, from, len(m.Keys), effects.Forbidden, why)
		return
	}
	class, peerID := 0, effects.Incarnation{}
	if !m.HasExt && !e.Links.ServesVanilla() {
		// No write of this sender could ever arrive, so no page is granted to it (M5, S25).
		e.Out.Mark(flow.Marks.VanillaRefused)
		t.refuseRequest(e, from, len(m.Keys), effects.Unsupported, flow.VanillaPeerReason())
		return
	}
	if m.HasExt {
		peerID = effects.Incarnation(m.Ext.Incarnation)
		var code effects.Code
		if class, code = e.Links.IdentifyPeer(&e.Env, ev, peerID, effects.Incarnation(m.Ext.To)); code != effects.OK {
			e.Out.Mark(flow.Marks.StrangerRefused)
			t.refuseRequest(e, from, len(m.Keys), code, flow.UnidentifiedReason(code))
			return
		}
		from.Class = class
		if len(m.Keys) == 0 {
			t.handleCommit(e, ev.Request, class, peerID)
			return
		}
		if e.Links.IncarnationByClass(class).HasLostLink() {
			e.Out.Mark(flow.Marks.StrangerRefused)
			t.refuseRequest(e, from, len(m.Keys), effects.Stale, flow.LinkLostReason())
			return
		}
	}
	operation := m.Ext.Operation
	if !m.HasExt {
		operation = 0
	}
	request := e.Store.HashRequest(t.requestID())
	if operation != 0 && t.handleRepeat(e, ev, from, peerID, operation, request) {
		return // An earlier attempt's grant or place in the queue stands, whatever this rank has become since (M6).
	}
	code, why := t.checkRequest(e)
	if code != effects.OK {
		e.Out.Mark(flow.Marks.AllocRefused)
		t.refuseRequest(e, from, len(m.Keys), code, why)
		return
	}
	if m.HasExt {
		t.recordBatch(e, class, request)
	}
	if e.Abandons.IsAbandoned(e.Now, request) {
		e.Out.Mark(allocqueue.Marks.RequestAbandoned)
		t.refuseRequest(e, from, len(m.Keys), effects.Cancelled, flow.EndReason(effects.Cancelled))
		return
	}
	if !m.HasExt {
		var hasClass bool
		if class, hasClass = e.Links.VanillaClass(&e.Env, ev, e.CountClassRows()); !hasClass {
			e.Out.Mark(flow.Marks.VanillasFull)
			t.refuseRequest(e, from, len(m.Keys), effects.TooMany, allocqueue.ShareFullReason("peers without our extensions", e.Links.VanillasMax()))
			return
		}
	}
	// A request that continues chunks of layers takes pages that were promised to it. So the request overtakes
	// none, and waiting requests may depend on its end.
	tenant := effects.Tenant(protocol.TenantOf(m.Keys[0]))
	if e.Pending.CanServeNow(&e.Env, class, tenant) || t.namesLayers() && m.Ext.Opened != 0 {
		if _, done := t.serveRequest(e, ev.Request, class, peerID, operation, request); done {
			e.Pending.CountPass(&e.Env, class)
			return
		}
	}
	timeout := effects.Duration(e.Cfg.AllocTimeout)
	if m.HasExt {
		timeout = effects.Duration(min(m.Ext.PatienceNS, uint64(timeout)))
	}
	row := allocqueue.Row{
		Owner: kernel.OwnerPushTarget, Class: class, Tenant: tenant, RequestHash: request,
		ContentHash: e.HashBatch(class, m.Keys, m.LastChunkTokens),
		Peer:        peerID, Operation: operation, PagesMax: m.Ext.Layers,
	}
	t.hashChunks(e, class)
	if len(m.Ext.Carried) > 0 { // Carried bytes do not wait: the reply names pages for the chunks.
		m.Ext.Carried = nil
		smaller := *ev
		smaller.Body = e.Out.Cut(m.Append(e.Out.Arena()))
		ev = &smaller
	}
	if refusal := e.Pending.Enqueue(&e.Env, row, ev, e.Hashes, timeout); refusal != nil {
		from.Class = class
		t.refuseRequest(e, from, len(m.Keys), effects.TooMany, refusal)
	}
}

// recordBatch records that the request goes on. A retry counts like a new batch: if the sender's link was lost, other
// peers could end the request, until the sender repeats a batch.
func (t *Target) recordBatch(e *flow.Env, class int, request uint64) {
	key := t.message.Keys[0]
	e.Outcomes.RecordBatch(&e.Env, class, outcomes.IDByKey(request, key), t.message.Ext.Operation, key)
}

// requestID returns the id of the request for which the sender works; the id is empty if the sender named none.
func (t *Target) requestID() []byte {
	if t.message.HasExt {
		return t.message.Ext.Request
	}
	return t.message.RequestID
}

// traceOf returns what the message carries of its request's trace.
func (t *Target) traceOf() (none effects.TraceContext) {
	if t.message.HasExt {
		return effects.TraceFromWire(t.message.Ext.Trace)
	}
	return none
}

// handleRepeat serves a retry of an operation (M6). If pages were granted, the reply names the same pages and the
// remaining time; if the request still waits, the retry keeps its place in the queue. No reply is sent to the
// earlier attempt, which the sender has given up. handleRepeat returns false if the operation is new.
//
// Example: the sender retries after a timeout while the first reply is still in flight. Both replies name the
// same pages.
func (t *Target) handleRepeat(
	e *flow.Env, ev *effects.Received, from flow.Sender, peerID effects.Incarnation, operation, request uint64,
) bool {
	if batchHash, taken := e.Landings.FindCarried(peerID, operation); taken {
		if batchHash != request^e.HashBatch(from.Class, t.message.Keys, t.message.LastChunkTokens) {
			t.refuseReusedOperation(e, from)
			return true
		}
		e.Out.Mark(landing.Marks.TakenBefore)
		t.recordBatch(e, from.Class, request)
		t.resetReply()
		t.reply.Ext.Taken = uint32(len(t.message.Keys))
		e.Out.Reply(effects.Reply{Request: ev.Request, Body: e.Out.Cut(t.reply.Append(e.Out.Arena()))})
		return true
	}
	if x := e.Landings.FindOperation(&e.Env, peerID, operation); x != nil && !x.IsOwnRead() {
		if x.Request != request || x.ContentHash != e.HashBatch(from.Class, t.message.Keys, t.message.LastChunkTokens) {
			t.refuseReusedOperation(e, from)
			return true
		}
		e.Out.Mark(flow.Marks.AskedAgain)
		if x.Revoking || t.reply.Decode(x.Reply, &e.Cfg.Wire) != nil {
			t.refuseRequest(e, from, len(t.message.Keys), effects.Withdrawn, &effects.Why{Field: "grant", Ours: "revoked"})
			return true
		}
		t.recordBatch(e, from.Class, request)
		t.reply.Ext.LeaseNS = uint64(max(0, x.CommitBy.Sub(e.Now)))
		e.Out.Reply(effects.Reply{Request: ev.Request, Body: e.Out.Cut(t.reply.Append(e.Out.Arena()))})
		return true
	}
	return t.rejoinQueue(e, ev, from, peerID, operation, request)
}

// rejoinQueue gives the retry of a waiting request the queue place of the first attempt, and returns false if no
// such request waits.
func (t *Target) rejoinQueue(
	e *flow.Env, ev *effects.Received, from flow.Sender, peerID effects.Incarnation, operation, request uint64,
) bool {
	h, q := e.Pending.FindOperation(peerID, operation)
	switch {
	case q == nil:
		return false
	case q.Owner != kernel.OwnerPushTarget || q.RequestHash != request ||
		q.ContentHash != e.HashBatch(from.Class, t.message.Keys, t.message.LastChunkTokens):
		t.refuseReusedOperation(e, from)
	default:
		e.Out.Mark(flow.Marks.AskedAgain)
		t.recordBatch(e, from.Class, request)
		e.Pending.AcceptRetry(h, ev, 0)
	}
	return true
}

// refuseReusedOperation refuses a request with an operation id that belongs to another batch. Another message used this
// sender's operation id before, and the pages that the request would write are not the pages that were granted.
func (t *Target) refuseReusedOperation(e *flow.Env, from flow.Sender) {
	e.Out.Mark(flow.Marks.AllocRefused)
	t.refuseRequest(e, from, len(t.message.Keys), effects.Mismatch, flow.OtherBatchReason())
}

// refuseWaiting refuses a waiting request that can no longer be served, and removes the request from the queue.
func (t *Target) refuseWaiting(
	e *flow.Env, h table.Handle, code effects.Code, why *effects.Why,
) {
	q := e.Pending.Get(h)
	t.decodeWaiting(e, q)
	e.HashBatch(q.Class, t.message.Keys, 0)
	t.hashChunks(e, q.Class)
	e.LoseChunks(e.Hashes, code)
	t.arrivedAt = q.ArrivedAt
	from := flow.Sender{Request: q.Request, Conn: q.Conn, Class: q.Class, Extended: t.message.HasExt}
	t.refuseRequest(e, from, len(t.message.Keys), code, why)
	e.Pending.Remove(&e.Env, h)
}

// TryServe serves a waiting request when its turn has come, if the pages are free.
func (t *Target) TryServe(e *flow.Env, q *allocqueue.Row) (allocqueue.TryResult, allocqueue.Shortfall) {
	if !e.MayFit(q) {
		return allocqueue.Short, q.Shortfall
	}
	t.decodeWaiting(e, q)
	t.arrivedAt = q.ArrivedAt
	return allocqueue.ResultOf(t.serveRequest(e, q.Request, q.Class, q.Peer, q.Operation, q.RequestHash))
}

// decodeWaiting decodes the message of a waiting request again into t.message.
func (t *Target) decodeWaiting(e *flow.Env, q *allocqueue.Row) {
	if t.message.Decode(q.Body, &e.Cfg.Wire) != nil {
		panic("BUG: a waiting request does not decode any more")
	}
}
