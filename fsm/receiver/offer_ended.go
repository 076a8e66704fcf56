package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// What is remembered of offers that had our last word, and what they are answered who come again.

// wasEnded answers r.offer if it had our last word, or may have had it.
func (r *Receiver) wasEnded(v *env.Env, l *link.Links, to effects.Request, class int) bool {
	m := &r.offer
	if x := r.tombstones.find(v.Now, effects.Incarnation(m.Ext.Incarnation), m.Ext.Operation, m.Ext.Attempt); x != nil {
		v.Out.Mark(MarkOfferBuried)
		if x.code == effects.OK {
			r.acknowledge(v, to, r.heard(), nil, false)
		} else {
			r.fail(v, to, true, r.heard(), x.code, ended(x.code), false)
		}
		return true
	}
	watermark := r.tombstones.watermark(class)
	if !r.cfg.Leased || watermark == ever {
		return false
	}
	if began, known := l.Anchor(v, class, m.Ext.Stamps, m.Ext.GrantedNS); known && began > watermark {
		return false
	}
	v.Out.Mark(MarkOfferBuried)
	r.fail(v, to, true, r.heard(), effects.Expired, tooLate(), false)
	return true
}

// rememberRefused remembers that r.offer was refused.
func (r *Receiver) rememberRefused(v *env.Env, class int, code effects.Code) {
	m := &r.offer
	if class == 0 || !m.HasExt || m.Ext.Operation == 0 || code == effects.Stale {
		return // Nobody that we know offered it, or offered it to us: that word ends no loan.
	}
	r.tombstones.add(tombstone{
		class: class, peer: effects.Incarnation(m.Ext.Incarnation), operation: m.Ext.Operation, attempt: m.Ext.Attempt,
		code: code, said: v.Now, over: r.leaseOver(v),
	})
}

// rememberDone remembers that an offer's end was told, or will be.
func (r *Receiver) rememberDone(
	v *env.Env, class int, peer effects.Incarnation, operation uint64, code effects.Code, over effects.Time,
) {
	r.tombstones.add(tombstone{
		class: class, peer: peer, operation: operation, done: true, code: code, said: v.Now, over: over,
	})
}

// A done says that an offer is not read any more.
type done struct {
	pull    protocol.PullID
	us      effects.Incarnation // who we are to its sender
	to      effects.Incarnation
	grant   uint64
	code    effects.Code
	missing uint32
}

// notify has a sender told that its offer is not read any more: its pages are its own again from then on.
func (r *Receiver) notify(v *env.Env, to table.Handle, class int, d done) {
	m := &r.done
	*m = protocol.PullDoneSignal{PullID: d.pull, HasExt: true, Ext: protocol.PullDoneExt{
		Version: link.VersionMax, Incarnation: protocol.UUID(d.us), To: protocol.UUID(d.to),
		Grant: d.grant, Code: uint32(d.code), Missing: d.missing,
	}}
	if d.code != effects.OK {
		m.Ext.Reason = ended(d.code).Reason()
	}
	r.word = m.Append(r.word[:0])
	r.notices.notify(v, to, class, r.word)
}

// OnGuestLeft handles that a class is another peer's from now on.
func (r *Receiver) OnGuestLeft(class int) {
	r.tombstones.left(class)
	r.landings.left(class)
}
