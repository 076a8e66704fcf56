package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/protocol"
)

// answer serves r.message, which is of this request, if its new keys fit, all or none, and says whether it did, or
// what it lacks.
func (r *Receiver) answer(
	v *env.Env, to effects.Request, class int, peer effects.Incarnation, operation, request uint64,
) (lacks shortfall, done bool) {
	s := &r.Store
	if !r.landings.room(v, s, len(r.message.Keys)) {
		return shortfall{}, false
	}
	lastTokens := r.message.LastChunkTokens
	p := r.landings.planFor(s, class, r.message.Keys, lastTokens, r.cfg.ReplyForm != protocol.FormAsync1)
	fresh := p.fresh()
	if !p.fits(v, s, class) {
		p.unplan(v, s)
		return r.short(p, endless), false
	}
	m := &r.reply
	m.Form, m.AllocFailed, m.HasExt = r.cfg.ReplyForm, false, r.message.HasExt
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	m.Ext = protocol.AllocReplyExt{Version: link.VersionMax, Generations: m.Ext.Generations[:0], Committed: m.Ext.Committed[:0], Gone: m.Ext.Gone[:0]}
	var pages []effects.Page
	var x *landing
	if fresh > 0 {
		var id effects.GrantID
		id, pages = v.Pools.Grant(v.Pool, class, p.lengths, grantRef(kindLanding))
		ends := v.Now.Add(r.cfg.Lease)
		x = r.landings.begin(v, id, purpose{
			class: class, peer: peer, operation: operation, request: request, what: p.what(lastTokens),
			ends: ends, over: r.quiet(peer, ends),
		})
		m.Ext.Grant, m.Ext.LeaseNS = uint64(id), uint64(r.cfg.Lease)
		v.Out.Grant(effects.Grant{ID: id, Peer: peer, Pages: pages})
		v.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: fresh, ID: uint64(id), Peer: peer})
	}
	m.AlreadySent = p.claimReady(v, s, class, request, m.AlreadySent)
	for i := range p.spots {
		at := &p.spots[i]
		if at.ready {
			continue
		}
		page := at.page
		if at.repeat >= 0 {
			v.Out.Mark(MarkKeyRepeated)
			page = p.spots[at.repeat].page
		} else {
			x.fills = append(x.fills, at.entry)
		}
		m.RemoteIndexes = append(m.RemoteIndexes, int64(pages[page].Index))
		m.RemoteUUIDs = append(m.RemoteUUIDs, r.cfg.Buffer)
		m.Ext.Generations = append(m.Ext.Generations, uint64(pages[page].Generation))
	}
	body := v.Out.Cut(m.Append(v.Out.Arena()))
	if x != nil && operation != 0 {
		x.reply = append(x.reply, body...)
	}
	v.Out.Reply(effects.Reply{Request: to, Body: body})
	if x != nil && r.cfg.TrustUncommitted && peer == (effects.Incarnation{}) {
		r.landings.trust(v, s, x)
	}
	return shortfall{}, true
}

// quiet is when a grant ends by itself. A plain sender on a plane nobody watches is quiet only when the stated
// residual has passed too: its writes may land until then, and nothing will ever tell (rule M5).
func (r *Receiver) quiet(peer effects.Incarnation, ends effects.Time) effects.Time {
	if peer == (effects.Incarnation{}) {
		return ends.Add(r.cfg.Residual)
	}
	return ends
}

// short is what a batch lacks of which the plan was taken back. It can use no page after until.
func (r *Receiver) short(p *plan, until effects.Time) shortfall {
	if p.unpromised { // Where there was no room to promise one that is ready, there may be now.
		return shortfall{}
	}
	return shortfall{pages: p.fresh(), readied: r.Store.Readied(), until: until}
}

// OnLanded takes the pages that a fenced plane says are whole.
func (r *Receiver) OnLanded(v *env.Env, ev *effects.Landed) {
	x := r.landings.find(ev.Grant)
	if x == nil || x.peer != ev.Peer || x.reading {
		Unknown(v, ev)
		return
	}
	r.landings.landed(v, &r.Store, x, ev, len(ev.Pages) > 0 && r.wanted(v, x))
}

// Unknown answers what landed under no grant that we gave for landing.
func Unknown(v *env.Env, ev *effects.Landed) {
	v.Out.Mark(MarkLandedUnknown)
	v.Out.Confirm(ev.Landing, effects.Withdrawn)
}

// wanted says whether somebody may come for what lands. A rank that drains keeps nothing for readers, who are refused
// already; nor does an abandoned request have any.
func (r *Receiver) wanted(v *env.Env, x *landing) bool {
	return !r.draining && !r.abandons.has(v.Now, x.request)
}

// OnRevoked ends the quarantine.
func (r *Receiver) OnRevoked(v *env.Env, ev *effects.Revoked) {
	r.landings.revoked(v, &r.Store, ev.Grant)
}

// OnPeerLost handles that a peer is gone.
func (r *Receiver) OnPeerLost(v *env.Env, peer effects.Incarnation) { r.landings.peerLost(v, peer) }

// takeBack ends a landing for a reason of ours.
func (r *Receiver) takeBack(v *env.Env, x *landing, code effects.Code) {
	if x.reading {
		r.stopReading(v, x, code)
		return
	}
	r.landings.revoke(v, x)
}

// onGrantEnds handles the end of a grant's time.
func (r *Receiver) onGrantEnds(v *env.Env, slot int32) {
	x := r.landings.due(v, slot)
	if x.reading {
		r.stopReading(v, x, effects.Expired)
		return
	}
	r.landings.overdue(v, &r.Store, x)
}

// commit handles the writer's word that all its writes are settled and whole.
func (r *Receiver) commit(v *env.Env, peer effects.Incarnation, id effects.GrantID) bool {
	x, again := r.landings.committed(v, peer, id)
	if x == nil {
		return again
	}
	r.landings.commit(v, &r.Store, x, r.wanted(v, x))
	return true
}

// requestID is the request that the asker works for, if it told one.
func (r *Receiver) requestID() []byte {
	if r.message.HasExt {
		return r.message.Ext.Request
	}
	return r.message.RequestID
}

// requestHash is the hash of a request's id; 0 of none.
func requestHash(s *store.Store, id []byte) uint64 {
	if len(id) == 0 {
		return 0
	}
	return s.Hash(id)
}

// settle answers a message without keys: commits and aborts.
func (r *Receiver) settle(v *env.Env, to effects.Request, class int, peer effects.Incarnation) {
	m := &r.reply
	m.Form, m.AllocFailed, m.HasExt = r.cfg.ReplyForm, false, true
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	m.Ext = protocol.AllocReplyExt{Version: link.VersionMax, Generations: m.Ext.Generations[:0], Committed: m.Ext.Committed[:0], Gone: m.Ext.Gone[:0]}
	for _, id := range r.message.Ext.Commit {
		if r.commit(v, peer, effects.GrantID(id)) {
			m.Ext.Committed = append(m.Ext.Committed, id)
		} else {
			m.Ext.Gone = append(m.Ext.Gone, id)
		}
	}
	for _, id := range r.message.Ext.Abort {
		r.landings.abort(v, &r.Store, peer, effects.GrantID(id))
		m.Ext.Gone = append(m.Ext.Gone, id)
	}
	if e := &r.message.Ext; len(e.Abort) > 0 {
		r.givenBack(v, class, peer, len(e.Abort), effects.StageAsk, e.Code, e.Reason)
	}
	v.Out.Reply(effects.Reply{Request: to, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
}

// never says whether asking again cannot help, because what was asked for can never be carried.
func never(code effects.Code) bool {
	return code == effects.Unsupported || code == effects.Mismatch || code == effects.Malformed ||
		code == effects.Invalid || code == effects.TooLarge
}

// refuseForGood answers who knows none of our codes with an empty frame, as LMCache-Ascend's receiver does whatever
// it cannot serve: the put there raises. After an allocation that failed the sender tells its proxy all the same
// that everything was sent.
func refuseForGood(v *env.Env, to effects.Request) {
	v.Out.Reply(effects.Reply{Request: to, Body: v.Out.Cut(v.Out.Arena())})
}

// refuse answers that there are no pages, and why.
func (r *Receiver) refuse(v *env.Env, who asker, keys int, code effects.Code, why *effects.Why) {
	if why != nil {
		why.Stage = effects.StageAsk
	}
	r.note(v, who, r.message.Ext.Incarnation, code, keys, why)
	if !who.extended && never(code) {
		refuseForGood(v, who.to)
		return
	}
	m := &r.reply
	m.Form, m.AllocFailed, m.HasExt = r.cfg.ReplyForm, true, who.extended
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	if r.cfg.ReplyForm == protocol.FormAsync1 || r.cfg.ReplyForm == protocol.FormAsync2 {
		for range max(keys, 1) {
			m.RemoteIndexes = append(m.RemoteIndexes, -1)
		}
	}
	m.Ext = protocol.AllocReplyExt{
		Version: link.VersionMax, Code: uint32(code), Generations: m.Ext.Generations[:0],
		Committed: m.Ext.Committed[:0], Gone: m.Ext.Gone[:0],
	}
	if why != nil {
		m.Ext.Reason = why.Reason()
	}
	if code == effects.NoMemory || code == effects.TooMany {
		m.Ext.RetryNS = uint64(r.cfg.AllocTimeout)
	}
	v.Out.Reply(effects.Reply{Request: who.to, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
}
