package push

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/land"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/pending"
	"github.com/kvferry/kvferry/protocol"
)

// answer serves t.message, which is of this request, if its new keys fit, all or none, and says whether it did, or
// what it lacks.
func (t *Target) answer(
	v *env.Env, r *flow.Rooms, to effects.Request, class int, peer effects.Incarnation, operation, request uint64,
) (lacks pending.Shortfall, done bool) {
	s := &r.Store
	if !r.Landings.Room(v, s, len(t.message.Keys)) {
		return pending.Shortfall{}, false
	}
	lastTokens := t.message.LastChunkTokens
	p := r.Landings.Plan(s, class, t.message.Keys, lastTokens, r.Cfg.ReplyForm != protocol.FormAsync1)
	fresh := p.Fresh()
	if !p.Fits(v, s, class) {
		p.Unplan(v, s)
		return r.Short(p, pending.Endless), false
	}
	m := &t.reply
	m.Form, m.AllocFailed, m.HasExt = r.Cfg.ReplyForm, false, t.message.HasExt
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	m.Ext = protocol.AllocReplyExt{Version: link.VersionMax, Generations: m.Ext.Generations[:0], Committed: m.Ext.Committed[:0], Gone: m.Ext.Gone[:0]}
	var pages []effects.Page
	var x *land.Landing
	if fresh > 0 {
		ends := v.Now.Add(r.Cfg.Lease)
		x, pages = r.Landings.Begin(v, p, land.For{
			Owner: kernel.OwnerPushTarget, Class: class, Peer: peer, Operation: operation, Request: request,
			What: p.What(lastTokens),
			Ends: ends, Over: r.Quiet(peer, ends),
		})
		m.Ext.Grant, m.Ext.LeaseNS = uint64(x.ID), uint64(r.Cfg.Lease)
		v.Out.Grant(effects.Grant{ID: x.ID, Peer: peer, Pages: pages})
		v.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: fresh, ID: uint64(x.ID), Peer: peer})
	}
	m.AlreadySent = p.ClaimReady(v, s, class, request, m.AlreadySent)
	for i := range p.Spots {
		at := &p.Spots[i]
		if at.Ready {
			continue
		}
		page := at.Page
		if at.Repeat >= 0 {
			v.Out.Mark(flow.MarkKeyRepeated)
			page = p.Spots[at.Repeat].Page
		}
		m.RemoteIndexes = append(m.RemoteIndexes, int64(pages[page].Index))
		m.RemoteUUIDs = append(m.RemoteUUIDs, r.Cfg.Buffer)
		m.Ext.Generations = append(m.Ext.Generations, uint64(pages[page].Generation))
	}
	body := v.Out.Cut(m.Append(v.Out.Arena()))
	if x != nil && operation != 0 {
		x.Reply = append(x.Reply, body...)
	}
	v.Out.Reply(effects.Reply{Request: to, Body: body})
	if x != nil && r.Cfg.TrustUncommitted && peer == (effects.Incarnation{}) {
		r.Landings.Trust(v, s, x)
	}
	return pending.Shortfall{}, true
}

// Commit handles the writer's word that all its writes are settled and whole.
func (t *Target) Commit(v *env.Env, r *flow.Rooms, peer effects.Incarnation, id effects.GrantID) bool {
	x, again := r.Landings.Committed(v, peer, id)
	if x == nil {
		return again
	}
	r.Landings.Commit(v, &r.Store, x, r.Wanted(v, x))
	return true
}

// settle answers a message without keys: commits and aborts.
func (t *Target) settle(v *env.Env, r *flow.Rooms, to effects.Request, class int, peer effects.Incarnation) {
	m := &t.reply
	m.Form, m.AllocFailed, m.HasExt = r.Cfg.ReplyForm, false, true
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	m.Ext = protocol.AllocReplyExt{Version: link.VersionMax, Generations: m.Ext.Generations[:0], Committed: m.Ext.Committed[:0], Gone: m.Ext.Gone[:0]}
	for _, id := range t.message.Ext.Commit {
		if t.Commit(v, r, peer, effects.GrantID(id)) {
			m.Ext.Committed = append(m.Ext.Committed, id)
		} else {
			m.Ext.Gone = append(m.Ext.Gone, id)
		}
	}
	for _, id := range t.message.Ext.Abort {
		r.Landings.Abort(v, &r.Store, peer, effects.GrantID(id))
		m.Ext.Gone = append(m.Ext.Gone, id)
	}
	if e := &t.message.Ext; len(e.Abort) > 0 {
		r.GivenBack(v, class, peer, len(e.Abort), effects.StageAsk, e.Code, e.Reason)
	}
	v.Out.Reply(effects.Reply{Request: to, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
}

// refuse answers that there are no pages, and why.
func (t *Target) refuse(v *env.Env, r *flow.Rooms, who flow.Asker, keys int, code effects.Code, why *effects.Why) {
	if why != nil {
		why.Stage = effects.StageAsk
	}
	r.Note(v, who, t.message.Ext.Incarnation, code, keys, why)
	if !who.Extended && flow.Never(code) {
		flow.RefuseForGood(v, who.To)
		return
	}
	m := &t.reply
	m.Form, m.AllocFailed, m.HasExt = r.Cfg.ReplyForm, true, who.Extended
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	if r.Cfg.ReplyForm == protocol.FormAsync1 || r.Cfg.ReplyForm == protocol.FormAsync2 {
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
		m.Ext.RetryNS = uint64(r.Cfg.AllocTimeout)
	}
	v.Out.Reply(effects.Reply{Request: who.To, Body: v.Out.Cut(m.Append(v.Out.Arena()))})
}
