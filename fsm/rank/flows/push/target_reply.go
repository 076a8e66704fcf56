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

// serveRequest serves t.message, which arrived as the request replyTo, if all new keys fit; otherwise nothing is
// granted (M9). done reports whether the request has been answered; if not, lacks says what the request is short of.
func (t *Target) serveRequest(
	e *flow.Env, replyTo effects.Request, class int, peerID effects.Incarnation, operation, requestHash uint64,
) (lacks allocqueue.Shortfall, done bool) {
	s := &e.Store
	if !e.Landings.HasRoom(&e.Env, s, len(t.message.Keys)) {
		return allocqueue.Shortfall{}, false
	}
	lastTokens := t.message.LastChunkTokens
	var p *landing.Plan
	if t.namesLayers() {
		if p, lacks, done = t.planLayers(e, replyTo, class, peerID, requestHash); p == nil {
			return lacks, done
		}
	} else if p = e.Landings.PlanKeys(
		&e.Env, s, class, t.message.Keys, t.message.Ext.Sums, lastTokens, t.cfg.ReplyForm != protocol.FormAsync1,
	); !p.FitsPool(&e.Env, s, e.Pool, class) {
		p.EndFills(&e.Env, s)
		return e.ShortfallOf(p, allocqueue.MaxTime), false
	}
	fresh := p.PagesNeeded()
	t.resetReply()
	m := &t.reply
	if fresh > 0 && len(t.message.Ext.Carried) > 0 {
		t.storeCarried(e, p, landing.Purpose{
			Owner: kernel.OwnerPushTarget, Class: class, Peer: peerID, Operation: operation, Request: requestHash,
			ContentHash: requestHash ^ p.ContentHash(lastTokens), Trace: t.traceOf(), ArrivedAt: t.arrivedAt,
		}, replyTo)
		return allocqueue.Shortfall{}, true
	}
	var pages []effects.Page
	var x *landing.Landing
	if fresh > 0 {
		ends := e.Now.Add(e.Cfg.Lease)
		x, pages = e.Landings.BeginGrant(&e.Env, p, e.Pool, landing.Purpose{
			Owner: kernel.OwnerPushTarget, Class: class, Peer: peerID, Operation: operation, Request: requestHash,
			ContentHash: p.ContentHash(lastTokens),
			CommitBy:    ends, Expires: t.grantEndTime(peerID, ends), ForLayers: t.namesLayers(),
			Trace: t.traceOf(), ArrivedAt: t.arrivedAt,
		})
		m.Ext.Grant, m.Ext.LeaseNS = uint64(x.ID), uint64(e.Cfg.Lease)
		e.Out.Grant(effects.Grant{ID: x.ID, Peer: peerID, Pages: pages})
		e.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: fresh, ID: uint64(x.ID), Peer: peerID})
	}
	m.AlreadySent = p.ClaimReady(&e.Env, s, class, requestHash, m.AlreadySent)
	for i := range p.Keys {
		at := &p.Keys[i]
		if at.Ready {
			continue
		}
		page := at.Page
		if at.DuplicateOf >= 0 {
			e.Out.Mark(flow.Marks.KeyRepeated)
			page = p.Keys[at.DuplicateOf].Page
		}
		m.RemoteIndexes = append(m.RemoteIndexes, int64(pages[page].Index))
		m.RemoteUUIDs = append(m.RemoteUUIDs, e.Cfg.Buffer)
		m.Ext.Generations = append(m.Ext.Generations, uint64(pages[page].Generation))
	}
	body := e.Out.Cut(m.Append(e.Out.Arena()))
	if x != nil && operation != 0 {
		x.Reply = append(x.Reply, body...)
	}
	e.Out.Reply(effects.Reply{Request: replyTo, Body: body})
	if x != nil && t.cfg.TrustUncommitted && peerID == (effects.Incarnation{}) {
		e.Landings.TrustPages(&e.Env, s, x)
	}
	return allocqueue.Shortfall{}, true
}

// resetReply resets t.reply to an empty reply to t.message.
func (t *Target) resetReply() {
	m := &t.reply
	m.Form, m.AllocFailed, m.HasExt = t.cfg.ReplyForm, false, t.message.HasExt
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	m.Ext = protocol.AllocReplyExt{Version: link.VersionMax, Generations: m.Ext.Generations[:0],
		Committed: m.Ext.Committed[:0], Gone: m.Ext.Gone[:0]}
}

// storeCarried stores the chunks that arrived inside t.message, makes them readable, and replies that the chunks were
// taken. No other process can store into the pages at any time, so there is no grant for a plane to watch, and
// nothing to commit (M4).
func (t *Target) storeCarried(e *flow.Env, p *landing.Plan, terms landing.Purpose, replyTo effects.Request) {
	s, m := &e.Store, &t.reply
	terms.CommitBy, terms.Expires = e.Now, e.Now
	x, pages := e.Landings.BeginGrant(&e.Env, p, e.Pool, terms)
	e.Out.Publish(pages)
	for i := range p.Keys {
		if at := &p.Keys[i]; at.NeedsPage() {
			page := pages[at.Page]
			from := uint64(i) * e.Cfg.PageBytes
			e.Out.Store(effects.Store{Page: page, Bytes: t.message.Ext.Carried[from:][:page.Length]})
		}
	}
	m.AlreadySent = p.ClaimReady(&e.Env, s, terms.Class, terms.Request, m.AlreadySent)
	m.Ext.Taken = uint32(len(p.Keys) - len(m.AlreadySent))
	wanted := e.IsLandingWanted(x)
	e.Landings.LandCarried(&e.Env, s, x, wanted)
	e.Out.Reply(effects.Reply{Request: replyTo, Body: e.Out.Cut(m.Append(e.Out.Arena()))})
}

// commitGrant handles the sender's message that all writes under a grant are settled and whole. commitGrant returns
// true if the grant is committed, also by an earlier commit.
func (t *Target) commitGrant(e *flow.Env, peerID effects.Incarnation, id effects.GrantID) bool {
	x, alreadyCommitted := e.Landings.FindCommitted(&e.Env, peerID, id)
	if x == nil {
		return alreadyCommitted
	}
	e.Work.SpendRows(x.PageCount())
	return e.Landings.CommitGrant(&e.Env, &e.Store, x, e.IsLandingWanted(x))
}

// handleCommit handles a message without keys, which commits or aborts grants. Each grant may have as many pages as a
// batch. If the message names several grants, only as many are handled as this step has work for. The reply says
// nothing about the rest, so that the sender repeats the rest. Our own senders name one grant in a message.
//
// A grant whose pages must be compared with their checksums first is answered alone, when that has been done.
func (t *Target) handleCommit(e *flow.Env, replyTo effects.Request, class int, peerID effects.Incarnation) {
	m := &t.reply
	t.resetCommitReply()
	for i, id := range t.message.Ext.Commit {
		if t.mustDefer(e, i) {
			break
		}
		if x := t.findUnverified(e, peerID, effects.GrantID(id)); x != nil {
			if i > 0 {
				e.Out.Mark(flow.Marks.WordsCut)
				break
			}
			t.verifyGrant(e, replyTo, x)
			return
		}
		if t.commitGrant(e, peerID, effects.GrantID(id)) {
			m.Ext.Committed = append(m.Ext.Committed, id)
		} else {
			m.Ext.Gone = append(m.Ext.Gone, id)
		}
	}
	for i, id := range t.message.Ext.Abort {
		if t.mustDefer(e, i) {
			break
		}
		e.Landings.AbortGrant(&e.Env, &e.Store, peerID, effects.GrantID(id))
		m.Ext.Gone = append(m.Ext.Gone, id)
	}
	if x := &t.message.Ext; len(x.Abort) > 0 {
		e.ReportReturned(class, peerID, len(x.Abort), effects.StageAsk, x.Code, x.Reason)
	}
	e.Out.Reply(effects.Reply{Request: replyTo, Body: e.Out.Cut(m.Append(e.Out.Arena()))})
}

// resetCommitReply resets t.reply to an empty reply to a commit.
func (t *Target) resetCommitReply() {
	m := &t.reply
	m.Form, m.AllocFailed, m.HasExt = t.cfg.ReplyForm, false, true
	m.AlreadySent, m.RemoteIndexes, m.RemoteUUIDs = m.AlreadySent[:0], m.RemoteIndexes[:0], m.RemoteUUIDs[:0]
	m.Ext = protocol.AllocReplyExt{Version: link.VersionMax, Generations: m.Ext.Generations[:0],
		Committed: m.Ext.Committed[:0], Gone: m.Ext.Gone[:0]}
}

// findUnverified returns the landing that a peer commits, if the commit is to be believed and pages of the landing have
// not been compared with their checksums yet; otherwise nil.
func (t *Target) findUnverified(e *flow.Env, peerID effects.Incarnation, id effects.GrantID) *landing.Landing {
	x := e.Landings.Find(id)
	if x == nil || !x.Verifying && !e.Landings.VerifiesGrant(&e.Env, x) {
		return nil
	}
	x, _ = e.Landings.FindCommitted(&e.Env, peerID, id)
	return x
}

// verifyGrant has the pages of a committed grant compared with their checksums. The commit is answered then. A commit
// that is repeated meanwhile takes the place of the former one, which its sender has given up (M6): the former one gets
// a reply that says nothing of the grant.
func (t *Target) verifyGrant(e *flow.Env, replyTo effects.Request, x *landing.Landing) {
	if x.Verifying {
		e.Out.Mark(landing.Marks.VerifyAgain)
		e.Out.Reply(effects.Reply{Request: x.CommitRequest, Body: e.Out.Cut(t.reply.Append(e.Out.Arena()))})
		x.CommitRequest = replyTo
		return
	}
	e.Work.SpendRows(x.PageCount())
	x.CommitRequest = replyTo
	e.Landings.BeginVerify(&e.Env, x, uint32(x.PageCount()), kernel.Ref{Owner: kernel.OwnerPushTarget, Subject: x.Handle()})
}

// onVerified handles the end of the comparison of the pages of a committed grant: the chunks whose pages have their
// checksums become readable, and the commit is answered. The commit has failed if a page does not have its checksum.
func (t *Target) onVerified(e *flow.Env, x *landing.Landing, ev *effects.Verified) {
	e.Work.SpendRows(x.PageCount())
	request, id, class, peerID := x.CommitRequest, x.ID, x.Class, x.Peer
	wanted := len(ev.Pages) > 0 && e.IsLandingWanted(x)
	code := e.Landings.OnVerified(&e.Env, &e.Store, x, ev, true, wanted)
	m := &t.reply
	t.resetCommitReply()
	if code == effects.OK {
		e.Landings.RecordCommit(&e.Env, class, peerID, id)
		m.Ext.Committed = append(m.Ext.Committed, uint64(id))
	} else {
		m.Ext.Gone = append(m.Ext.Gone, uint64(id))
	}
	if code == effects.Corrupt {
		why := effects.Why{Field: "kvf_sums", Ours: flow.FormatCount(ev.Corrupt) + " pages with other bytes", Theirs: "their checksums"}
		m.Ext.Code, m.Ext.Reason = uint32(code), why.Reason()
	}
	e.Out.Reply(effects.Reply{Request: request, Body: e.Out.Cut(m.Append(e.Out.Arena()))})
}

// mustDefer reports whether the entries of a message from position on are left for another message. The first entry
// never is.
func (t *Target) mustDefer(e *flow.Env, position int) bool {
	if position == 0 || e.Work.HasBudget() {
		return false
	}
	e.Out.Mark(flow.Marks.WordsCut)
	return true
}

// refuseRequest replies that no pages are granted, with the code and the reason.
func (t *Target) refuseRequest(e *flow.Env, from flow.Sender, keys int, code effects.Code, why *effects.Why) {
	if why != nil {
		why.Stage = effects.StageAsk
	}
	if from.Extended {
		from.Trace, from.ArrivedAt = t.traceOf(), t.arrivedAt
	}
	e.ReportRefusal(from, t.message.Ext.Incarnation, code, keys, why)
	if !from.Extended && flow.IsPermanent(code) {
		flow.SendEmptyReply(&e.Env, from.Request)
		return
	}
	m := &t.reply
	m.Form, m.AllocFailed, m.HasExt = t.cfg.ReplyForm, true, from.Extended
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
	e.Out.Reply(effects.Reply{Request: from.Request, Body: e.Out.Cut(m.Append(e.Out.Arena()))})
}

// grantEndTime returns when a grant ends by itself. For a sender without our extensions, on a plane where this rank
// does not observe the stores, that is only when Residual has passed as well: a write of that sender may land until
// then, and no event reports it (rule M5).
func (t *Target) grantEndTime(peerID effects.Incarnation, ends effects.Time) effects.Time {
	if peerID == (effects.Incarnation{}) {
		return ends.Add(t.cfg.Residual)
	}
	return ends
}
