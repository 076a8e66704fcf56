package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/pending"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A pushTarget answers who pushes: requests for pages, and their words on what they wrote.
type pushTarget struct {
	message protocol.AllocRequest  `snap:"scratch"`
	reply   protocol.AllocResponse `snap:"scratch"`
}

// onAlloc handles an AllocRequest.
func (t *pushTarget) onAlloc(v *env.Env, r *rooms, l *link.Links, ev *effects.Received) {
	who := asker{to: ev.Request, conn: ev.Conn}
	m := &t.message
	if err := m.Decode(ev.Body, &r.cfg.Wire); err != nil {
		v.Out.Mark(MarkAllocMalformed)
		r.malformed(v, who, effects.StageAsk, err, ev.Body)
		t.refuse(v, r, who, 0, effects.Malformed, nil)
		return
	}
	who.extended = m.HasExt
	class, peer := 0, effects.Incarnation{}
	if !m.HasExt && !l.Bearer() {
		// Nothing that it was granted could ever be written: no page is held for it.
		v.Out.Mark(MarkPlainRefused)
		t.refuse(v, r, who, len(m.Keys), effects.Unsupported, plainPeer())
		return
	}
	if m.HasExt {
		peer = effects.Incarnation(m.Ext.Incarnation)
		var known bool
		to := effects.Incarnation(m.Ext.To)
		if class, known = l.Inbound(v, peer, to); !known {
			v.Out.Mark(MarkStrangerRefused)
			t.refuse(v, r, who, len(m.Keys), effects.Stale, unknownLife())
			return
		}
		who.class = class
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
	code, why := r.check(v, m.Keys, m.Layout(), m.LastChunkTokens, len(m.Keys))
	if code != effects.OK {
		v.Out.Mark(MarkAllocRefused)
		t.refuse(v, r, who, len(m.Keys), code, why)
		return
	}
	if r.abandons.has(v.Now, request) {
		v.Out.Mark(pending.MarkAskAbandoned)
		t.refuse(v, r, who, len(m.Keys), effects.Cancelled, ended(effects.Cancelled))
		return
	}
	if !m.HasExt {
		var room bool
		if class, room = l.Plain(v, ev.Conn, r.Busy()); !room {
			v.Out.Mark(MarkPlainsFull)
			t.refuse(v, r, who, len(m.Keys), effects.TooMany, pending.TooMany("peers without our extensions", link.PlainMax))
			return
		}
	}
	if r.pending.MayPass(v, class) {
		if _, done := t.answer(v, r, ev.Request, class, peer, operation, request); done {
			r.pending.Passed(v, class)
			return
		}
	}
	patience := effects.Duration(r.cfg.AllocTimeout)
	if m.HasExt {
		patience = effects.Duration(min(m.Ext.PatienceNS, uint64(patience)))
	}
	what := pending.Row{
		Class: class, Who: request, What: r.named(m.Keys, m.LastChunkTokens), Peer: peer, Operation: operation,
		Keys: uint32(len(m.Keys)),
	}
	if crowded := r.pending.Wait(v, what, ev, r.hashes, patience); crowded != nil {
		who.class = class
		t.refuse(v, r, who, len(m.Keys), effects.TooMany, crowded)
	}
}

// requestID is the request that the asker works for, if it told one.
func (t *pushTarget) requestID() []byte {
	if t.message.HasExt {
		return t.message.Ext.Request
	}
	return t.message.RequestID
}

// again serves a retry of an operation: the same pages if they were granted, the
// same place in the queue if it still waits. The first asker's answer is moot.
func (t *pushTarget) again(
	v *env.Env, r *rooms, ev *effects.Received, who asker, peer effects.Incarnation, operation, request uint64,
) bool {
	if x := r.landings.Again(peer, operation); x != nil && !x.Reads() {
		if x.Request != request || x.What != r.named(t.message.Keys, t.message.LastChunkTokens) {
			t.refuseOther(v, r, who)
			return true
		}
		v.Out.Mark(MarkAskedAgain)
		if x.Revoking || t.reply.Decode(x.Reply, &r.cfg.Wire) != nil {
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
func (t *pushTarget) stillWaits(
	v *env.Env, r *rooms, ev *effects.Received, who asker, peer effects.Incarnation, operation, request uint64,
) bool {
	q := r.pending.Find(peer, operation)
	switch {
	case q == nil:
		return false
	case q.Offer || q.Who != request || q.What != r.named(t.message.Keys, t.message.LastChunkTokens):
		t.refuseOther(v, r, who)
	default:
		v.Out.Mark(MarkAskedAgain)
		q.Again(ev, 0)
	}
	return true
}

// refuseOther answers what has another's operation: somebody spoke in its name before it, and what it would write is
// not what was granted.
func (t *pushTarget) refuseOther(v *env.Env, r *rooms, who asker) {
	v.Out.Mark(MarkAllocRefused)
	t.refuse(v, r, who, len(t.message.Keys), effects.Mismatch, otherBatch())
}

// refuseWaiting answers a request that waits that it waits in vain.
func (t *pushTarget) refuseWaiting(
	v *env.Env, r *rooms, h table.Handle, code effects.Code, why *effects.Why,
) {
	q := r.pending.Get(h)
	t.decode(r, q)
	r.loseAll(t.message.Keys, code)
	who := asker{to: q.Request, conn: q.Conn, class: q.Class, extended: t.message.HasExt}
	t.refuse(v, r, who, len(t.message.Keys), code, why)
	r.pending.Remove(v, h)
}

// try serves a request whose turn it is, if it can be now.
func (t *pushTarget) try(v *env.Env, r *rooms, q *pending.Row) (pending.Shortfall, bool) {
	t.decode(r, q)
	return t.answer(v, r, q.Request, q.Class, q.Peer, q.Operation, q.Who)
}

// decode reads a waiting message again.
func (t *pushTarget) decode(r *rooms, q *pending.Row) {
	if t.message.Decode(q.Body, &r.cfg.Wire) != nil {
		panic("BUG: a waiting request does not decode any more")
	}
}
