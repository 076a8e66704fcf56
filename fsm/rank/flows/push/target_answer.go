package push

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/protocol"
)

// answer serves t.message, which arrived as the request to, if all new keys fit; otherwise nothing is granted
// (M9). done reports whether the request has been answered; if not, lacks says what the request is short of.
func (t *Target) answer(
	e *flow.Env, to effects.Request, class int, peer effects.Incarnation, operation, request uint64,
) (lacks allocqueue.Shortfall, done bool) {
	s := &e.Store
	if !e.Landings.Room(&e.Env, s, len(t.message.Keys)) {
		return allocqueue.Shortfall{}, false
	}
	lastTokens := t.message.LastChunkTokens
	var p *landing.Plan
	if t.layers() {
		if p, lacks, done = t.planLayers(e, to, class, peer, request); p == nil {
			return lacks, done
		}
	} else if p = e.Landings.Plan(s, class, t.message.Keys, lastTokens, t.cfg.ReplyForm != protocol.FormAsync1); !p.Fits(
		&e.Env, s, e.Pool, class) {
		p.Unplan(&e.Env, s)
		return e.Short(p, allocqueue.Endless), false
	}
	fresh := p.Fresh()
	t.emptyReply()
	m := &t.reply
	if fresh > 0 && len(t.message.Ext.Carried) > 0 {
		t.take(e, p, landing.For{
			Owner: kernel.OwnerPushTarget, Class: class, Peer: peer, Operation: operation, Request: request,
			What: request ^ p.What(lastTokens),
		}, to)
		return allocqueue.Shortfall{}, true
	}
	var pages []effects.Page
	var x *landing.Landing
	if fresh > 0 {
		ends := e.Now.Add(e.Cfg.Lease)
		x, pages = e.Landings.Begin(&e.Env, p, e.Pool, landing.For{
			Owner: kernel.OwnerPushTarget, Class: class, Peer: peer, Operation: operation, Request: request,
			What: p.What(lastTokens),
			Ends: ends, Over: t.quiet(peer, ends), Layers: t.layers(),
		})
		m.Ext.Grant, m.Ext.LeaseNS = uint64(x.ID), uint64(e.Cfg.Lease)
		e.Out.Grant(effects.Grant{ID: x.ID, Peer: peer, Pages: pages})
		e.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: fresh, ID: uint64(x.ID), Peer: peer})
	}
	m.AlreadySent = p.ClaimReady(&e.Env, s, class, request, m.AlreadySent)
	for i := range p.Spots {
		at := &p.Spots[i]
		if at.Ready {
			continue
		}
		page := at.Page
		if at.Repeat >= 0 {
			e.Out.Mark(flow.Marks.KeyRepeated)
			page = p.Spots[at.Repeat].Page
		}
		m.RemoteIndexes = append(m.RemoteIndexes, int64(pages[page].Index))
		m.RemoteUUIDs = append(m.RemoteUUIDs, e.Cfg.Buffer)
		m.Ext.Generations = append(m.Ext.Generations, uint64(pages[page].Generation))
	}
	body := e.Out.Cut(m.Append(e.Out.Arena()))
	if x != nil && operation != 0 {
		x.Reply = append(x.Reply, body...)
	}
	e.Out.Reply(effects.Reply{Request: to, Body: body})
	if x != nil && t.cfg.TrustUncommitted && peer == (effects.Incarnation{}) {
		e.Landings.Trust(&e.Env, s, x)
	}
	return allocqueue.Shortfall{}, true
}

// emptyReply resets t.reply to an empty reply to t.message.
func (t *Target) emptyReply() {
	m := &t.reply
	m.Form, m.AllocFailed, m.HasExt = t.cfg.ReplyForm, false, t.message.HasExt
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	m.Ext = protocol.AllocReplyExt{Version: link.VersionMax, Generations: m.Ext.Generations[:0],
		Committed: m.Ext.Committed[:0], Gone: m.Ext.Gone[:0]}
}

// take stores the chunks that arrived inside t.message, makes them readable, and replies that the chunks were
// taken. No other process can store into the pages at any time, so there is no grant for a plane to watch, and
// nothing to commit (M4).
func (t *Target) take(e *flow.Env, p *landing.Plan, what landing.For, to effects.Request) {
	s, m := &e.Store, &t.reply
	what.Ends, what.Over = e.Now, e.Now
	x, pages := e.Landings.Begin(&e.Env, p, e.Pool, what)
	e.Out.Publish(pages)
	for i := range p.Spots {
		if at := &p.Spots[i]; at.Fills() {
			page := pages[at.Page]
			from := uint64(i) * e.Cfg.PageBytes
			e.Out.Store(effects.Store{Page: page, Bytes: t.message.Ext.Carried[from:][:page.Length]})
		}
	}
	m.AlreadySent = p.ClaimReady(&e.Env, s, what.Class, what.Request, m.AlreadySent)
	m.Ext.Taken = uint32(len(p.Spots) - len(m.AlreadySent))
	keep := e.Wanted(x)
	e.Landings.Take(&e.Env, s, x, keep)
	e.Out.Reply(effects.Reply{Request: to, Body: e.Out.Cut(m.Append(e.Out.Arena()))})
}

// commit handles the sender's message that all writes under a grant are settled and whole. commit returns true if
// the grant is committed, also by an earlier commit.
func (t *Target) commit(e *flow.Env, peer effects.Incarnation, id effects.GrantID) bool {
	x, again := e.Landings.Committed(&e.Env, peer, id)
	if x == nil {
		return again
	}
	e.Work.Spend(x.Size())
	return e.Landings.Commit(&e.Env, &e.Store, x, e.Wanted(x))
}

// settle handles a message without keys, which commits or aborts grants. Each grant may have as many pages as a
// batch. If the message names several grants, only as many are handled as this step has work for. The reply says
// nothing about the rest, so that the sender repeats the rest. Our own senders name one grant in a message.
func (t *Target) settle(e *flow.Env, to effects.Request, class int, peer effects.Incarnation) {
	m := &t.reply
	m.Form, m.AllocFailed, m.HasExt = t.cfg.ReplyForm, false, true
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	m.Ext = protocol.AllocReplyExt{Version: link.VersionMax, Generations: m.Ext.Generations[:0],
		Committed: m.Ext.Committed[:0], Gone: m.Ext.Gone[:0]}
	for i, id := range t.message.Ext.Commit {
		if t.cut(e, i) {
			break
		}
		if t.commit(e, peer, effects.GrantID(id)) {
			m.Ext.Committed = append(m.Ext.Committed, id)
		} else {
			m.Ext.Gone = append(m.Ext.Gone, id)
		}
	}
	for i, id := range t.message.Ext.Abort {
		if t.cut(e, i) {
			break
		}
		e.Landings.Abort(&e.Env, &e.Store, peer, effects.GrantID(id))
		m.Ext.Gone = append(m.Ext.Gone, id)
	}
	if x := &t.message.Ext; len(x.Abort) > 0 {
		e.GivenBack(class, peer, len(x.Abort), effects.StageAsk, x.Code, x.Reason)
	}
	e.Out.Reply(effects.Reply{Request: to, Body: e.Out.Cut(m.Append(e.Out.Arena()))})
}

// cut reports whether the entries of a message from position at on are left for another message. The first entry
// never is.
func (t *Target) cut(e *flow.Env, at int) bool {
	if at == 0 || e.Work.Left() {
		return false
	}
	e.Out.Mark(flow.Marks.WordsCut)
	return true
}

// refuse replies that no pages are granted, with the code and the reason.
func (t *Target) refuse(e *flow.Env, who flow.Asker, keys int, code effects.Code, why *effects.Why) {
	if why != nil {
		why.Stage = effects.StageAsk
	}
	e.Note(who, t.message.Ext.Incarnation, code, keys, why)
	if !who.Extended && flow.Never(code) {
		flow.RefuseForGood(&e.Env, who.To)
		return
	}
	m := &t.reply
	m.Form, m.AllocFailed, m.HasExt = t.cfg.ReplyForm, true, who.Extended
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	if t.cfg.ReplyForm == protocol.FormAsync1 || t.cfg.ReplyForm == protocol.FormAsync2 {
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
		m.Ext.RetryNS = uint64(e.Cfg.AllocTimeout)
	}
	e.Out.Reply(effects.Reply{Request: who.To, Body: e.Out.Cut(m.Append(e.Out.Arena()))})
}

// quiet returns when a grant ends by itself. For a sender without our extensions, on a plane where this rank does
// not observe the stores, that is only when Residual has passed as well: a write of that sender may land until
// then, and no event reports it (rule M5).
func (t *Target) quiet(peer effects.Incarnation, ends effects.Time) effects.Time {
	if peer == (effects.Incarnation{}) {
		return ends.Add(t.cfg.Residual)
	}
	return ends
}
