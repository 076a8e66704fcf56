package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/table"
)

// Push mode: the owner writes the chunks into pages that are granted in the step that sends the request. The pages
// become free with the owner's reply, which is sent when nothing of the owner writes any more. A requester that
// compares checksums makes chunks readable with the reply on all planes, because the reply has their checksums. Without
// a reply they become free like all pages that a peer may write: on fenced planes when the grant is revoked, on leased
// planes only with the proof that writing has stopped, never by time alone (M4).

// grantPages grants pages to the owner, one for each chunk that the get requests, all or none, unless the grant of a
// former attempt is still in force. Pages under a grant that the peer has written to wait for the checksums in a reply
// that has been lost, so that such a grant is revoked. If there are no pages, or the get does not need any, the get
// ends and grantPages returns false.
func (f *Requester) grantPages(e *flow.Env, h table.Handle, r *getRow) bool {
	if x := e.Landings.Find(r.writeGrant); x != nil && !x.Revoking && x.HeldPages == 0 && x.Peer == r.peerID {
		return true
	}
	f.revokeGrant(e, r)
	r.writeGrant = 0
	if f.keys = r.listKeys(f.keys); int(e.CountReadable(f.keys)) == r.keyCount() {
		e.Out.Mark(Marks.CameElsewhere)
		f.finishUnsent(e, h, r, effects.OK)
		return false
	}
	if code := unwantedCode(e, r); code != effects.OK {
		f.finishUnsent(e, h, r, code)
		return false
	}
	f.keys = f.keys[r.presentCount:]
	if !f.mayTakePages(e, f.keys[0]) || !e.Landings.HasRoom(&e.Env, &e.Store, len(f.keys)) {
		f.failUnsentNoPages(e, h, r)
		return false
	}
	p := e.Landings.PlanKeys(&e.Env, &e.Store, ownClass, f.keys, nil, e.Cfg.Layout.TokenCount(), false)
	if !p.FitsPool(&e.Env, &e.Store, e.LandingPool(), ownClass) {
		p.EndFills(&e.Env, &e.Store)
		f.failUnsentNoPages(e, h, r)
		return false
	}
	f.recordPassing(e)
	if r.attempt > 0 { // An operation has a single grant.
		f.lastOperation++
		r.operation = f.lastOperation
	}
	grantEnd := e.Now.Add(e.Cfg.Lease)
	x, pages := e.Landings.BeginGrant(&e.Env, p, e.LandingPool(), landing.Purpose{
		Owner: kernel.OwnerP2PTarget, Class: ownClass, Peer: r.peerID, Request: r.requestHash, CommitBy: grantEnd, Expires: grantEnd,
	})
	r.writeGrant, r.grantedAt, r.pageIndexes = x.ID, e.Now, r.pageIndexes[:0]
	for i := range p.Keys {
		r.pageIndexes = append(r.pageIndexes, uint32(p.Keys[i].Page))
	}
	e.Out.Grant(effects.Grant{ID: x.ID, Peer: r.peerID, Pages: pages})
	e.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: uint32(len(pages)), ID: uint64(x.ID), Peer: r.peerID})
	return true
}

// unwantedCode returns the reason why nobody would fetch the chunks of a get, or OK.
func unwantedCode(e *flow.Env, r *getRow) effects.Code {
	switch {
	case e.Draining:
		return effects.Draining
	case e.Abandons.IsAbandoned(e.Now, r.requestHash):
		return effects.Cancelled
	}
	return effects.OK
}

// listGrantedPages writes into the request the page for each chunk.
func (f *Requester) listGrantedPages(e *flow.Env, r *getRow) {
	m, x := &f.request, e.Landings.Find(r.writeGrant)
	pages := e.Pools.PagesOf(x.ID)
	for _, place := range r.pageIndexes {
		page := pages[place]
		buffer, index := e.Cfg.PageName(page)
		m.MemIndexes, m.BufferUUIDs = append(m.MemIndexes, index), append(m.BufferUUIDs, buffer)
		m.Ext.Generations = append(m.Ext.Generations, uint64(page.Generation))
	}
	m.PullMode, m.Ext.Grant, m.Ext.GrantedNS, m.Ext.LeaseNS = false, uint64(x.ID), int64(r.grantedAt),
		uint64(x.CommitBy.Sub(r.grantedAt))
	m.Ext.PatienceNS = min(m.Ext.PatienceNS, uint64(f.cfg.LookupTimeout))
	m.Ext.Stamps = e.Links.IncarnationOf(r.peer).ClockStamps(e.Now)
}

// listKeys lists the keys of a get in the memory of into.
func (r *getRow) listKeys(into [][]byte) [][]byte {
	into = into[:0]
	for i := range r.keyCount() {
		into = append(into, r.keyAt(i))
	}
	return into
}

// failUnsentNoPages ends a get that was not sent, because there is no memory for the chunks.
func (f *Requester) failUnsentNoPages(e *flow.Env, h table.Handle, r *getRow) {
	e.Out.Mark(Marks.NoRoom)
	r.setReason(effects.NoMemory, *noPagesReason(e, f.keys))
	f.finishUnsent(e, h, r, effects.NoMemory)
}

// finishUnsent ends a get at its turn, before the request is sent.
func (f *Requester) finishUnsent(e *flow.Env, h table.Handle, r *getRow, code effects.Code) {
	f.deliverOutcome(e, r, code)
	f.removeGet(e, h, r)
}

// handlePushReply handles the reply in push mode. The reply says how many chunks the owner wrote, and that the owner
// writes no more, whatever the code is. Only a reply that forbids the request says nothing about an earlier attempt,
// which may be written at the time, so that the grant ends as after a reply that is senseless (M6).
func (f *Requester) handlePushReply(e *flow.Env, h table.Handle, r *getRow) {
	m := &f.reply
	if !m.HasExt || effects.Incarnation(m.Ext.Incarnation) != r.peerID || int(m.HitChunks) > r.keyCount()-int(r.presentCount) {
		e.Out.Mark(Marks.AnswerSenseless)
		f.failInvalidReply(e, h, r, effects.Why{
			Field: "AscendBatchedLookupAndGetRetMsg", Ours: "at most " + flow.FormatCount(r.keyCount()-int(r.presentCount)) +
				" hits, of who was asked",
			Theirs: flow.FormatCount(m.HitChunks) + " hits, or another's",
		})
		return
	}
	if _, currentID := e.Links.IncarnationOf(r.peer).Link(); currentID == r.peerID {
		e.Links.IncarnationOf(r.peer).RecordStamps(m.Ext.Stamps)
	}
	code := effects.CodeFromWire(m.Ext.Code)
	if code != effects.OK {
		e.Out.Mark(Marks.Refused)
		r.setReason(code, effects.Why{Said: effects.SanitizeText(m.Ext.Reason)})
	}
	if code == effects.Forbidden {
		f.finishGet(e, h, r, code)
		return
	}
	r.recordShareUsedUp(m)
	if x := e.Landings.Find(r.writeGrant); x != nil {
		if code == effects.OK && !r.delivered && m.HitChunks > 0 {
			pages := r.countPages(m.HitChunks)
			if f.verifyPush(e, h, r, x, pages) {
				return
			}
			if e.Cfg.Leased || e.Landings.HoldsLanded() {
				e.Landings.LandFirst(&e.Env, &e.Store, x, pages, e.IsLandingWanted(x))
			}
		}
		if !x.Revoking || e.Cfg.Leased {
			e.Landings.OnWriterQuiet(&e.Env, &e.Store, x)
		}
	}
	r.writeGrant = 0
	f.finishPush(e, h, r, code)
}

// verifyPush begins to compare the pages that the peer says it has written with the checksums of its reply, and returns
// true, if the pages may still be taken and a checksum of one of them is known. The get goes on in onVerified.
func (f *Requester) verifyPush(e *flow.Env, h table.Handle, r *getRow, x *landing.Landing, pages uint32) bool {
	if len(f.reply.Ext.Sums) == 0 || !e.Landings.MayTake(&e.Env, x, pages) {
		return false
	}
	e.Landings.StateSums(&e.Env, x, r.pageIndexes, f.reply.Ext.Sums)
	if !e.Landings.VerifiesGrant(&e.Env, x) {
		return false
	}
	r.phase = getVerifying
	e.Work.SpendRows(x.PageCount())
	e.Landings.BeginVerify(&e.Env, x, pages, getRef(kindVerify, h))
	return true
}

// onVerified handles the end of the comparison of pages that the peer has written. If the outcome was delivered before
// (by a deadline or an abort), the chunks are not used. If a page has other bytes than the peer stated, the get fails;
// chunks with the right bytes stay, without a claim for the request.
func (f *Requester) onVerified(e *flow.Env, h table.Handle, ev *effects.Verified) {
	r := f.gets.Get(h)
	x := e.Landings.Find(r.writeGrant)
	e.Work.SpendRows(x.PageCount())
	code := e.Landings.OnVerified(&e.Env, &e.Store, x, ev, !r.delivered, ev.Corrupt == 0 && e.IsLandingWanted(x))
	if code == effects.Corrupt {
		e.Out.Mark(Marks.ReadFailed)
		r.setReason(code, effects.Why{Stage: effects.StageTransfer, Field: "data plane", Ours: code.String()})
	} else {
		code = effects.OK // What was not taken is missing in the count of the chunks that are here.
	}
	r.writeGrant = 0
	f.finishPush(e, h, r, code)
}

// finishPush ends a get in push mode, of which nothing is written any more. The outcome of a get that has not failed is
// OK if all of its chunks are here.
func (f *Requester) finishPush(e *flow.Env, h table.Handle, r *getRow, code effects.Code) {
	switch {
	case r.delivered:
		e.Out.Mark(Marks.GhostAnswered)
	case code == effects.OK:
		if f.keys = r.listKeys(f.keys); int(e.CountReadable(f.keys)) < r.keyCount() {
			e.Out.Mark(Marks.Miss)
			code = effects.NotFound
		}
	}
	f.finishGet(e, h, r, code)
}

// countPages returns how many pages the first chunks of a get take. A chunk that is requested twice takes a single
// page.
func (r *getRow) countPages(chunks uint32) (count uint32) {
	for _, place := range r.pageIndexes[:chunks] {
		count = max(count, place+1)
	}
	return count
}

// revokeGrant revokes the grant of a get, if the plane proves that the peer writes no more. On leased planes the
// peer's late reply proves that, or the end of the grant is proven like that of any other grant (M4).
func (f *Requester) revokeGrant(e *flow.Env, r *getRow) {
	if r.mode != Push || e.Cfg.Leased {
		return
	}
	if x := e.Landings.Find(r.writeGrant); x != nil && !x.Revoking {
		e.Landings.RevokeGrant(&e.Env, x)
	}
}

// OnPeerLost revokes the grants of a lost peer. On fenced planes the peer cannot write any more, and a get may send its
// request again with new pages.
func (f *Requester) OnPeerLost(e *flow.Env, peer effects.Incarnation, _ bool) {
	for slot := range f.gets.Slots() {
		if r := f.gets.Get(f.gets.At(slot)); r != nil && r.mode == Push && r.writeGrant != 0 && r.peerID == peer {
			f.revokeGrant(e, r)
		}
	}
}

// A grantFlow is the flow that owns the grants of a Requester. The events of a grant have a different owner than the
// events of a get.
type grantFlow struct{ requester *Requester }

// GrantFlow returns the flow that owns the grants of the gets.
func (f *Requester) GrantFlow() flow.Flow { return grantFlow{f} }

// Step handles landed chunks, and the proof that nobody writes under a grant any more.
func (grantFlow) Step(e *flow.Env, _ kernel.Ref, ev effects.Event) {
	switch ev := ev.(type) {
	case *effects.Landed:
		x := e.Landings.Find(ev.Grant)
		if x == nil || x.Peer != ev.Peer {
			landing.RefuseUnknown(&e.Env, ev)
			return
		}
		if e.Landings.HoldsLanded() {
			e.Landings.HoldLanded(&e.Env, x, ev)
			return
		}
		// If a write failed, nobody fetches the chunks behind a gap, and if the get is over nobody fetches any: the
		// outcome has claimed the prefix that was present.
		e.Landings.OnLanded(&e.Env, &e.Store, x, ev, ev.Complete && !x.Revoking && e.IsLandingWanted(x))
	case *effects.Revoked:
		e.Landings.OnRevoked(&e.Env, &e.Store, ev.Grant)
	default:
		kernel.PanicUnexpected("grants of p2p gets")
	}
}

// OnTimer ends a grant whose time is over.
func (grantFlow) OnTimer(e *flow.Env, ref kernel.Ref) {
	e.Landings.ExpireGrant(&e.Env, &e.Store, e.Landings.OnTimer(&e.Env, ref.Subject.Slot()))
}

// OnSignal ends a grant for a reason of this node. The get of the grant receives its outcome.
func (g grantFlow) OnSignal(e *flow.Env, ref kernel.Ref, s flow.Signal) {
	if s.Kind != flow.LandingEnded {
		kernel.PanicUnexpected("grants of p2p gets")
	}
	id := e.Landings.At(ref.Subject.Slot()).ID
	g.requester.failGetOfGrant(e, id, s.Code)
	if x := e.Landings.Find(id); x != nil && !x.Revoking {
		e.Landings.RevokeGrant(&e.Env, x)
	}
}

// failGetOfGrant ends the get of a grant that this node takes back.
func (f *Requester) failGetOfGrant(e *flow.Env, id effects.GrantID, code effects.Code) {
	for slot := range f.gets.Slots() {
		h := f.gets.At(slot)
		if r := f.gets.Get(h); r != nil && r.writeGrant == id && !r.delivered {
			f.failGet(e, h, r, code)
		}
	}
}

// AbortCommand does nothing and returns false.
func (grantFlow) AbortCommand(*flow.Env, kernel.Ref) bool { return false }

// CountUnfinished returns 0: all grants are in the room for landings, which counts them.
func (grantFlow) CountUnfinished(*flow.Env) int { return 0 }

// VisitTables reports nothing: all grants are in the room for landings.
func (grantFlow) VisitTables(table.VisitFunc) {}

// RowState returns the state of the grant of a Ref.
func (grantFlow) RowState(r *flow.Rooms, ref kernel.Ref) uint16 {
	if r.Landings.At(ref.Subject.Slot()).Revoking {
		return 1
	}
	return 0
}
