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

// A Target answers who pushes: requests for pages, and their words on what they wrote. What it granted lies in the
// landings, and what waits for pages in pending; it has no row of its own.
type Target struct {
	cfg     TargetConfig           `snap:"share"`
	message protocol.AllocRequest  `snap:"scratch"`
	reply   protocol.AllocResponse `snap:"scratch"`
}

// TargetConfig is what this flow alone goes by.
type TargetConfig struct {
	ReplyForm        protocol.ReplyForm
	TrustUncommitted bool             // readable without commit
	Residual         effects.Duration // how long after its deadline a write of nobody's may land (M5)
	WholeChunks      bool             // layers are taken all of a chunk at once
}

// Emptied has granted nothing, and uses the memory of t, which is not used any more.
func (t *Target) Emptied(cfg TargetConfig) Target {
	return Target{cfg: cfg, message: t.message, reply: t.reply}
}

// Step takes an AllocRequest, or what becomes of a grant.
func (t *Target) Step(e *flow.Env, _ kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Received:
		t.onAlloc(e, ev)
	case *effects.Landed:
		t.onLanded(e, ev)
	case *effects.Revoked:
		e.Landings.Revoked(&e.Env, &e.Store, ev.Grant)
	default:
		kernel.Foreign("who is pushed to")
	}
}

// Due ends a grant whose time is over.
func (t *Target) Due(e *flow.Env, ref kernel.Ref) {
	e.Landings.Overdue(&e.Env, &e.Store, e.Landings.Due(&e.Env, ref.Subject.Slot()))
}

// Signal is told that a request that waits waits in vain, or that a grant is to end for a reason of ours.
func (t *Target) Signal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	switch s.Kind {
	case flow.Refused:
		t.refuseWaiting(e, ref.Subject, s.Code, s.Why)
	case flow.Ended:
		e.Landings.Revoke(&e.Env, e.Landings.At(ref.Subject.Slot()))
	case flow.Changed, flow.LeaseEnded, flow.Reached:
		kernel.Foreign("who is pushed to")
	}
}

// Abort has nothing to end: no command of ours is a target's.
func (t *Target) Abort(*flow.Env, kernel.Ref) bool { return false }

// Left counts what a drain waits for beside what is in the rooms.
func (t *Target) Left(*flow.Env) int { return 0 }

// onLanded takes the pages that a fenced plane says are whole.
func (t *Target) onLanded(e *flow.Env, ev *effects.Landed) {
	x := e.Landings.Find(ev.Grant)
	if x == nil || x.Peer != ev.Peer {
		landing.Unknown(&e.Env, ev)
		return
	}
	e.Landings.Landed(&e.Env, &e.Store, x, ev, len(ev.Pages) > 0 && e.Wanted(x))
}

// onAlloc handles an AllocRequest.
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
		// Nothing that it was granted could ever be written: no page is held for it.
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
		return // What was granted or waits is true whatever this rank has become since.
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
	// What goes on with layers takes pages that it was promised: nobody is passed by it, and others may wait for its end.
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
	if len(m.Ext.Carried) > 0 { // Bytes do not wait: the answer names pages for them.
		m.Ext.Carried = nil
		ev = &effects.Received{Conn: ev.Conn, Request: ev.Request, Body: e.Out.Cut(m.Append(e.Out.Arena()))}
	}
	if crowded := e.Pending.Wait(&e.Env, what, ev, e.Hashes, patience); crowded != nil {
		who.Class = class
		t.refuse(e, who, len(m.Keys), effects.TooMany, crowded)
	}
}

// requestID is the request that the asker works for, if it told one.
func (t *Target) requestID() []byte {
	if t.message.HasExt {
		return t.message.Ext.Request
	}
	return t.message.RequestID
}

// again serves a retry of an operation: the same pages if they were granted, the
// same place in the queue if it still waits. The first asker's answer is moot.
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

// stillWaits gives a retry of a request that waits the place of its first attempt.
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

// refuseOther answers what has another's operation: somebody spoke in its name before it, and what it would write is
// not what was granted.
func (t *Target) refuseOther(e *flow.Env, who flow.Asker) {
	e.Out.Mark(flow.Marks.AllocRefused)
	t.refuse(e, who, len(t.message.Keys), effects.Mismatch, flow.OtherBatch())
}

// refuseWaiting answers a request that waits that it waits in vain.
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

// Try serves a request whose turn it is, if it fits now.
func (t *Target) Try(e *flow.Env, q *allocqueue.Row) (allocqueue.Tried, allocqueue.Shortfall) {
	if !e.MayFit(q) {
		return allocqueue.Short, q.Lacks
	}
	t.decode(e, q)
	return allocqueue.Outcome(t.answer(e, q.Request, q.Class, q.Peer, q.Operation, q.Who))
}

// decode reads a waiting message again.
func (t *Target) decode(e *flow.Env, q *allocqueue.Row) {
	if t.message.Decode(q.Body, &e.Cfg.Wire) != nil {
		panic("BUG: a waiting request does not decode any more")
	}
}
