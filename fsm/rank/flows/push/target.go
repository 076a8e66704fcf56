package push

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

var _ flow.Target = (*Target)(nil)

// A Target serves senders that push: it answers allocation requests, commits and aborts. What it granted is
// recorded in the landings, and requests that wait for pages in the allocation queue (Pending). The Target has no
// rows of its own.
type Target struct {
	cfg     TargetConfig           `snap:"share"`
	message protocol.AllocRequest  `snap:"scratch"`
	reply   protocol.AllocResponse `snap:"scratch"`
}

// TargetConfig is the configuration of a Target.
type TargetConfig struct {
	GrantSettings
	WholeChunks bool // a layerwise request must name all layers of each chunk
}

// Emptied returns a Target that has granted nothing. The memory of t is reused, so t must not be used afterwards.
func (t *Target) Emptied(cfg TargetConfig) Target {
	return Target{cfg: cfg, message: t.message, reply: t.reply}
}

// Step handles the landing and the revocation of a grant.
func (t *Target) Step(e *flow.Env, _ kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Landed:
		t.onLanded(e, ev)
	case *effects.Revoked:
		e.Landings.Revoked(&e.Env, &e.Store, ev.Grant)
	default:
		kernel.Foreign("who is pushed to")
	}
}

// Serves reports that the Target takes each message of the alloc channel that no other flow takes by tag.
func (t *Target) Serves(c effects.Channel) (protocol.Tag, bool) {
	return protocol.TagNone, c == effects.ChannelAlloc
}

// Receive takes an AllocRequest.
func (t *Target) Receive(e *flow.Env, x *effects.Received) { t.onAlloc(e, x) }

// Due ends a grant when its lease is over.
func (t *Target) Due(e *flow.Env, ref kernel.Ref) {
	e.Landings.Overdue(&e.Env, &e.Store, e.Landings.Due(&e.Env, ref.Subject.Slot()))
}

// Signal handles that a waiting request can no longer be served, or that this rank ends a grant early.
func (t *Target) Signal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	switch s.Kind {
	case flow.Refused:
		t.refuseWaiting(e, ref.Subject, s.Code, s.Why)
	case flow.Ended:
		e.Landings.Revoke(&e.Env, e.Landings.At(ref.Subject.Slot()))
	case flow.Changed, flow.LeaseEnded:
		kernel.Foreign("who is pushed to")
	}
}

// Abort returns false: no command of the engine is open in this flow.
func (t *Target) Abort(*flow.Env, kernel.Ref) bool { return false }

// Left returns 0: all that a drain waits for is counted by the shared tables.
func (t *Target) Left(*flow.Env) int { return 0 }

// onLanded handles the report of a fenced plane that pages are whole. The grant id and the peer must match a
// grant in force (M2).
func (t *Target) onLanded(e *flow.Env, ev *effects.Landed) {
	x := e.Landings.Find(ev.Grant)
	if x == nil || x.Peer != ev.Peer {
		landing.Unknown(&e.Env, ev)
		return
	}
	e.Landings.Landed(&e.Env, &e.Store, x, ev, len(ev.Pages) > 0 && e.Wanted(x))
}

// onAlloc handles an AllocRequest: it refuses the request, repeats an earlier reply, grants pages, or puts the
// request into the allocation queue.
func (t *Target) onAlloc(e *flow.Env, ev *effects.Received) {
	who := flow.Asker{To: ev.Request, Conn: ev.Conn}
	m := &t.message
	if err := m.Decode(ev.Body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(flow.Marks.AllocMalformed)
		e.Malformed(who, effects.StageAsk, err, ev.Body)
		t.refuse(e, who, 0, effects.Malformed, nil)
		return
	}
	who.Extended = m.HasExt
	class, peer := 0, effects.Incarnation{}
	if !m.HasExt && !e.Links.Bearer() {
		// No write of this sender could ever arrive, so no page is granted to it (M5, S25).
		e.Out.Mark(flow.Marks.VanillaRefused)
		t.refuse(e, who, len(m.Keys), effects.Unsupported, flow.PlainPeer())
		return
	}
	if m.HasExt {
		peer = effects.Incarnation(m.Ext.Incarnation)
		var known bool
		to := effects.Incarnation(m.Ext.To)
		if class, known = e.Links.Inbound(&e.Env, peer, to); !known {
			e.Out.Mark(flow.Marks.StrangerRefused)
			t.refuse(e, who, len(m.Keys), effects.Stale, flow.UnknownLife())
			return
		}
		who.Class = class
		if len(m.Keys) == 0 {
			t.settle(e, ev.Request, class, peer)
			return
		}
		if e.Links.OfClass(class).Gone() {
			e.Out.Mark(flow.Marks.StrangerRefused)
			t.refuse(e, who, len(m.Keys), effects.Stale, flow.Cut())
			return
		}
	}
	operation := m.Ext.Operation
	if !m.HasExt {
		operation = 0
	}
	request := e.Store.RequestHash(t.requestID())
	if operation != 0 && t.again(e, ev, who, peer, operation, request) {
		return // An earlier attempt's grant or place in the queue stands, whatever this rank has become since (M6).
	}
	code, why := t.check(e)
	if code != effects.OK {
		e.Out.Mark(flow.Marks.AllocRefused)
		t.refuse(e, who, len(m.Keys), code, why)
		return
	}
	if m.HasExt {
		e.Ended.Began(&e.Env, class, request, operation, m.Keys[0])
	}
	if e.Abandons.Has(e.Now, request) {
		e.Out.Mark(allocqueue.Marks.RequestAbandoned)
		t.refuse(e, who, len(m.Keys), effects.Cancelled, flow.WhyEnded(effects.Cancelled))
		return
	}
	if !m.HasExt {
		var room bool
		if class, room = e.Links.Plain(&e.Env, ev.Conn, e.Busy()); !room {
			e.Out.Mark(flow.Marks.VanillasFull)
			t.refuse(e, who, len(m.Keys), effects.TooMany, allocqueue.TooMany("peers without our extensions", e.Links.Plains()))
			return
		}
	}
	// A request that continues chunks of layers takes pages that were promised to it. So the request overtakes
	// none, and waiting requests may depend on its end.
	if e.Pending.MayPass(&e.Env, class) || t.layers() && m.Ext.Opened != 0 {
		if _, done := t.answer(e, ev.Request, class, peer, operation, request); done {
			e.Pending.Passed(&e.Env, class)
			return
		}
	}
	patience := effects.Duration(e.Cfg.AllocTimeout)
	if m.HasExt {
		patience = effects.Duration(min(m.Ext.PatienceNS, uint64(patience)))
	}
	what := allocqueue.Row{
		Owner: kernel.OwnerPushTarget, Class: class, Who: request, What: e.Named(m.Keys, m.LastChunkTokens),
		Peer: peer, Operation: operation, Keys: m.Ext.Layers,
	}
	t.chunks(e)
	if len(m.Ext.Carried) > 0 { // Carried bytes do not wait: the reply names pages for the chunks.
		m.Ext.Carried = nil
		ev = &effects.Received{Conn: ev.Conn, Request: ev.Request, Body: e.Out.Cut(m.Append(e.Out.Arena()))}
	}
	if crowded := e.Pending.Wait(&e.Env, what, ev, e.Hashes, patience); crowded != nil {
		who.Class = class
		t.refuse(e, who, len(m.Keys), effects.TooMany, crowded)
	}
}

// requestID returns the id of the request for which the sender works; the id is empty if the sender named none.
func (t *Target) requestID() []byte {
	if t.message.HasExt {
		return t.message.Ext.Request
	}
	return t.message.RequestID
}

// again serves a retry of an operation (M6). If pages were granted, the reply names the same pages and the
// remaining time; if the request still waits, the retry keeps its place in the queue. No reply is sent to the
// earlier attempt, which the sender has given up. again returns false if the operation is new.
//
// Example: the sender retries after a timeout while the first reply is still in flight. Both replies name the
// same pages.
func (t *Target) again(
	e *flow.Env, ev *effects.Received, who flow.Asker, peer effects.Incarnation, operation, request uint64,
) bool {
	if what, taken := e.Landings.Taken(peer, operation); taken {
		if what != request^e.Named(t.message.Keys, t.message.LastChunkTokens) {
			t.refuseOther(e, who)
			return true
		}
		e.Out.Mark(landing.Marks.TakenBefore)
		t.emptyReply()
		t.reply.Ext.Taken = uint32(len(t.message.Keys))
		e.Out.Reply(effects.Reply{Request: ev.Request, Body: e.Out.Cut(t.reply.Append(e.Out.Arena()))})
		return true
	}
	if x := e.Landings.Again(&e.Env, peer, operation); x != nil && !x.Reads() {
		if x.Request != request || x.What != e.Named(t.message.Keys, t.message.LastChunkTokens) {
			t.refuseOther(e, who)
			return true
		}
		e.Out.Mark(flow.Marks.AskedAgain)
		if x.Revoking || t.reply.Decode(x.Reply, &e.Cfg.Wire) != nil {
			t.refuse(e, who, len(t.message.Keys), effects.Withdrawn, &effects.Why{Field: "grant", Ours: "taken back"})
			return true
		}
		t.reply.Ext.LeaseNS = uint64(max(0, x.Ends.Sub(e.Now)))
		e.Out.Reply(effects.Reply{Request: ev.Request, Body: e.Out.Cut(t.reply.Append(e.Out.Arena()))})
		return true
	}
	return t.stillWaits(e, ev, who, peer, operation, request)
}

// stillWaits gives the retry of a waiting request the queue place of the first attempt, and returns false if no
// such request waits.
func (t *Target) stillWaits(
	e *flow.Env, ev *effects.Received, who flow.Asker, peer effects.Incarnation, operation, request uint64,
) bool {
	h, q := e.Pending.Find(peer, operation)
	switch {
	case q == nil:
		return false
	case q.Owner != kernel.OwnerPushTarget || q.Who != request ||
		q.What != e.Named(t.message.Keys, t.message.LastChunkTokens):
		t.refuseOther(e, who)
	default:
		e.Out.Mark(flow.Marks.AskedAgain)
		e.Pending.Again(h, ev, 0)
	}
	return true
}

// refuseOther refuses a request with an operation id that belongs to another batch. Another message used this
// sender's operation id before, and the pages that the request would write are not the pages that were granted.
func (t *Target) refuseOther(e *flow.Env, who flow.Asker) {
	e.Out.Mark(flow.Marks.AllocRefused)
	t.refuse(e, who, len(t.message.Keys), effects.Mismatch, flow.OtherBatch())
}

// refuseWaiting refuses a waiting request that can no longer be served, and removes the request from the queue.
func (t *Target) refuseWaiting(
	e *flow.Env, h table.Handle, code effects.Code, why *effects.Why,
) {
	q := e.Pending.Get(h)
	t.decode(e, q)
	e.Named(t.message.Keys, 0)
	t.chunks(e)
	e.LoseAll(e.Hashes, code)
	who := flow.Asker{To: q.Request, Conn: q.Conn, Class: q.Class, Extended: t.message.HasExt}
	t.refuse(e, who, len(t.message.Keys), code, why)
	e.Pending.Remove(&e.Env, h)
}

// Try serves a waiting request when its turn has come, if the pages are free.
func (t *Target) Try(e *flow.Env, q *allocqueue.Row) (allocqueue.Tried, allocqueue.Shortfall) {
	if !e.MayFit(q) {
		return allocqueue.Short, q.Lacks
	}
	t.decode(e, q)
	return allocqueue.Outcome(t.answer(e, q.Request, q.Class, q.Peer, q.Operation, q.Who))
}

// decode decodes the message of a waiting request again into t.message.
func (t *Target) decode(e *flow.Env, q *allocqueue.Row) {
	if t.message.Decode(q.Body, &e.Cfg.Wire) != nil {
		panic("BUG: a waiting request does not decode any more")
	}
}
