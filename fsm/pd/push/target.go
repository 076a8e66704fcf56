package push

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/pending"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A Target answers who pushes: requests for pages, and their words on what they wrote.
type Target struct {
	message protocol.AllocRequest  `snap:"scratch"`
	reply   protocol.AllocResponse `snap:"scratch"`
}

// OnAlloc handles an AllocRequest.
func (t *Target) OnAlloc(v *env.Env, r *flow.Rooms, l *link.Links, ev *effects.Received) {
	who := flow.Asker{To: ev.Request, Conn: ev.Conn}
	m := &t.message
	if err := m.Decode(ev.Body, &r.Cfg.Wire); err != nil {
		v.Out.Mark(flow.MarkAllocMalformed)
		r.Malformed(v, who, effects.StageAsk, err, ev.Body)
		t.refuse(v, r, who, 0, effects.Malformed, nil)
		return
	}
	who.Extended = m.HasExt
	class, peer := 0, effects.Incarnation{}
	if !m.HasExt && !l.Bearer() {
		// Nothing that it was granted could ever be written: no page is held for it.
		v.Out.Mark(flow.MarkPlainRefused)
		t.refuse(v, r, who, len(m.Keys), effects.Unsupported, flow.PlainPeer())
		return
	}
	if m.HasExt {
		peer = effects.Incarnation(m.Ext.Incarnation)
		var known bool
		to := effects.Incarnation(m.Ext.To)
		if class, known = l.Inbound(v, peer, to); !known {
			v.Out.Mark(flow.MarkStrangerRefused)
			t.refuse(v, r, who, len(m.Keys), effects.Stale, flow.UnknownLife())
			return
		}
		who.Class = class
		if len(m.Keys) == 0 {
			t.settle(v, r, ev.Request, class, peer)
			return
		}
	}
	operation := m.Ext.Operation
	if !m.HasExt {
		operation = 0
	}
	request := r.Store.RequestHash(t.requestID())
	if operation != 0 && t.again(v, r, ev, who, peer, operation, request) {
		return // What was granted or waits is true whatever this rank has become since.
	}
	code, why := r.Check(v, m.Keys, m.Layout(), m.LastChunkTokens, len(m.Keys))
	if code != effects.OK {
		v.Out.Mark(flow.MarkAllocRefused)
		t.refuse(v, r, who, len(m.Keys), code, why)
		return
	}
	if r.Abandons.Has(v.Now, request) {
		v.Out.Mark(pending.MarkAskAbandoned)
		t.refuse(v, r, who, len(m.Keys), effects.Cancelled, flow.WhyEnded(effects.Cancelled))
		return
	}
	if !m.HasExt {
		var room bool
		if class, room = l.Plain(v, ev.Conn, r.Busy()); !room {
			v.Out.Mark(flow.MarkPlainsFull)
			t.refuse(v, r, who, len(m.Keys), effects.TooMany, pending.TooMany("peers without our extensions", l.Plains()))
			return
		}
	}
	if r.Pending.MayPass(v, class) {
		if _, done := t.answer(v, r, ev.Request, class, peer, operation, request); done {
			r.Pending.Passed(v, class)
			return
		}
	}
	patience := effects.Duration(r.Cfg.AllocTimeout)
	if m.HasExt {
		patience = effects.Duration(min(m.Ext.PatienceNS, uint64(patience)))
	}
	what := pending.Row{
		Class: class, Who: request, What: r.Named(m.Keys, m.LastChunkTokens), Peer: peer, Operation: operation,
		Keys: uint32(len(m.Keys)),
	}
	if crowded := r.Pending.Wait(v, what, ev, r.Hashes, patience); crowded != nil {
		who.Class = class
		t.refuse(v, r, who, len(m.Keys), effects.TooMany, crowded)
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
	v *env.Env, r *flow.Rooms, ev *effects.Received, who flow.Asker, peer effects.Incarnation, operation, request uint64,
) bool {
	if x := r.Landings.Again(peer, operation); x != nil && !x.Reads() {
		if x.Request != request || x.What != r.Named(t.message.Keys, t.message.LastChunkTokens) {
			t.refuseOther(v, r, who)
			return true
		}
		v.Out.Mark(flow.MarkAskedAgain)
		if x.Revoking || t.reply.Decode(x.Reply, &r.Cfg.Wire) != nil {
			t.refuse(v, r, who, len(t.message.Keys), effects.Withdrawn, &effects.Why{Field: "grant", Ours: "taken back"})
			return true
		}
		t.reply.Ext.LeaseNS = uint64(max(0, x.Ends.Sub(v.Now)))
		v.Out.Reply(effects.Reply{Request: ev.Request, Body: v.Out.Cut(t.reply.Append(v.Out.Arena()))})
		return true
	}
	return t.stillWaits(v, r, ev, who, peer, operation, request)
}

// stillWaits gives a retry of a request that waits the place of its first attempt.
func (t *Target) stillWaits(
	v *env.Env, r *flow.Rooms, ev *effects.Received, who flow.Asker, peer effects.Incarnation, operation, request uint64,
) bool {
	q := r.Pending.Find(peer, operation)
	switch {
	case q == nil:
		return false
	case q.Offer || q.Who != request || q.What != r.Named(t.message.Keys, t.message.LastChunkTokens):
		t.refuseOther(v, r, who)
	default:
		v.Out.Mark(flow.MarkAskedAgain)
		q.Again(ev, 0)
	}
	return true
}

// refuseOther answers what has another's operation: somebody spoke in its name before it, and what it would write is
// not what was granted.
func (t *Target) refuseOther(v *env.Env, r *flow.Rooms, who flow.Asker) {
	v.Out.Mark(flow.MarkAllocRefused)
	t.refuse(v, r, who, len(t.message.Keys), effects.Mismatch, flow.OtherBatch())
}

// RefuseWaiting answers a request that waits that it waits in vain.
func (t *Target) RefuseWaiting(
	v *env.Env, r *flow.Rooms, h table.Handle, code effects.Code, why *effects.Why,
) {
	q := r.Pending.Get(h)
	t.decode(r, q)
	r.LoseAll(t.message.Keys, code)
	who := flow.Asker{To: q.Request, Conn: q.Conn, Class: q.Class, Extended: t.message.HasExt}
	t.refuse(v, r, who, len(t.message.Keys), code, why)
	r.Pending.Remove(v, h)
}

// Try serves a request whose turn it is, if it can be now.
func (t *Target) Try(v *env.Env, r *flow.Rooms, q *pending.Row) (pending.Shortfall, bool) {
	t.decode(r, q)
	return t.answer(v, r, q.Request, q.Class, q.Peer, q.Operation, q.Who)
}

// decode reads a waiting message again.
func (t *Target) decode(r *flow.Rooms, q *pending.Row) {
	if t.message.Decode(q.Body, &r.Cfg.Wire) != nil {
		panic("BUG: a waiting request does not decode any more")
	}
}
