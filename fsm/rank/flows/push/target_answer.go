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

// answer serves t.message, which is of this request, if its new keys fit, all or none, and says whether it did, or
// what it lacks.
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

// emptyReply begins an answer to t.message.
func (t *Target) emptyReply() {
	m := &t.reply
	m.Form, m.AllocFailed, m.HasExt = t.cfg.ReplyForm, false, t.message.HasExt
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	m.Ext = protocol.AllocReplyExt{Version: link.VersionMax, Generations: m.Ext.Generations[:0],
		Committed: m.Ext.Committed[:0], Gone: m.Ext.Gone[:0]}
}

// take stores the chunks that came with t.message, makes them readable, and answers that. Nobody else could store into
// their pages at any time, so there is no grant for a plane to watch, and nothing to commit.
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

// commit handles the writer's word that all its writes are settled and whole.
func (t *Target) commit(e *flow.Env, peer effects.Incarnation, id effects.GrantID) bool {
	x, again := e.Landings.Committed(&e.Env, peer, id)
	if x == nil {
		return again
	}
	e.Work.Spend(x.Size())
	return e.Landings.Commit(&e.Env, &e.Store, x, e.Wanted(x))
}

// settle answers a message without keys: commits and aborts. Each may be of as many pages as a batch has. Of a message
// that names several, those that this step has work for are done; of the others the answer says nothing, so that their
// writer says them again. Ours says one at a time.
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

// cut says whether what a message names at this place, and behind it, is left for another one. The first never is.
func (t *Target) cut(e *flow.Env, at int) bool {
	if at == 0 || e.Work.Left() {
		return false
	}
	e.Out.Mark(flow.Marks.WordsCut)
	return true
}

// refuse answers that there are no pages, and why.
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

// quiet is when a grant ends by itself. A plain sender on a plane nobody watches is quiet only when the stated residual
// has passed too: its writes may land until then, and nothing will ever tell (rule M5).
func (t *Target) quiet(peer effects.Incarnation, ends effects.Time) effects.Time {
	if peer == (effects.Incarnation{}) {
		return ends.Add(t.cfg.Residual)
	}
	return ends
}
