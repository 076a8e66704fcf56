package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// handleReply handles the reply to a request for chunks.
func (f *Requester) handleReply(e *flow.Env, h table.Handle, r *getRow, body []byte) {
	if protocol.HasTag(body, protocol.TagP2PErrorMsg, &e.Cfg.Wire) && f.errorReply.Decode(body, &e.Cfg.Wire) == nil {
		f.handleErrorReply(e, h, r)
		return
	}
	m := &f.reply
	if err := m.Decode(body, &e.Cfg.Wire); err != nil {
		e.Out.Mark(Marks.AnswerMalformed)
		f.failInvalidReply(e, h, r, link.DecodeReason(err))
		return
	}
	if r.mode == Push {
		f.handlePushReply(e, h, r)
		return
	}
	if m.HasExt {
		r.readGrant = m.Ext.Grant
	}
	r.recordShareUsedUp(m)
	switch code := effects.CodeFromWire(m.Ext.Code); {
	case m.HasExt && code != effects.OK:
		e.Out.Mark(Marks.Refused)
		r.setReason(code, effects.Why{Said: effects.SanitizeText(m.Ext.Reason)})
		f.finishGet(e, h, r, code)
	case r.delivered:
		e.Out.Mark(Marks.GhostAnswered)
		f.queueDone(e, h, r)
	case !f.isStillLinked(e, r):
		// The link went down while the reply was queued, so no read can use it. The next attempt finds the same loan,
		// if the peer's incarnation is the same.
		e.Out.Mark(Marks.AnswerAfterLink)
		r.readGrant = 0
		f.retryOrFail(e, h, r, effects.Stale, effects.Why{Field: "incarnation", Theirs: "different from that of the request"})
	case m.HitChunks == 0 && r.readGrant == 0:
		e.Out.Mark(Marks.Miss)
		f.finishGet(e, h, r, effects.NotFound)
	case !f.isValidReply(e, r):
		e.Out.Mark(Marks.AnswerSenseless)
		f.failInvalidReply(e, h, r, effects.Why{
			Field: "AscendBatchedLookupAndGetRetMsg", Ours: "a prefix of " + flow.FormatCount(r.keyCount()-int(r.presentCount)) +
				" keys, under a grant",
			Theirs: flow.FormatCount(m.HitChunks) + " hits, or such without a page and a generation of a buffer that was listed",
		})
	case unwantedCode(e, r) != effects.OK:
		f.finishGet(e, h, r, unwantedCode(e, r))
	case r.mode == Delayed:
		f.keepLoan(e, h, r)
	default:
		f.startRead(e, h, r)
	}
}

// recordShareUsedUp records that the owner has more chunks than it lends or writes at a time, if the reply says so. The
// missing chunks are then reported with that limit as the reason.
func (r *getRow) recordShareUsedUp(m *protocol.AscendBatchedLookupAndGetRetMsg) {
	r.shareUsedUp = m.HasExt && m.Ext.Code == 0 && len(m.Ext.Reason) > 0 && int(m.HitChunks) < r.keyCount()-int(r.presentCount)
	if r.shareUsedUp {
		r.setReason(effects.NotFound, effects.Why{Said: effects.SanitizeText(m.Ext.Reason)})
	}
}

// handleErrorReply handles an error reply. If the peer does not know this node, the handshake is repeated.
func (f *Requester) handleErrorReply(e *flow.Env, h table.Handle, r *getRow) {
	why := effects.Why{Field: "P2PErrorMsg.error_code", Theirs: f.errorReply.Code.String()}
	if f.errorReply.Code != protocol.P2PNotIntroduced {
		e.Out.Mark(Marks.Failed)
		r.setReason(effects.Refused, why)
		f.finishGet(e, h, r, effects.Refused)
		return
	}
	e.Out.Mark(Marks.IntroduceAgain)
	if f.isStillLinked(e, r) { // Otherwise the link has been replaced already.
		e.Links.FailPeer(&e.Env, r.peer, effects.Stale, why)
	}
	f.retryOrFail(e, h, r, effects.Stale, why)
}

// isStillLinked reports whether the link is up to the incarnation that was asked (M2).
func (f *Requester) isStillLinked(e *flow.Env, r *getRow) bool {
	g, _ := e.Links.Outbound(r.peer).Gate()
	_, currentID := e.Links.IncarnationOf(r.peer).Link()
	return g == link.GateOpen && currentID == r.peerID
}

// isValidReply reports whether a reply names a valid page for each chunk that it claims to lend.
func (f *Requester) isValidReply(e *flow.Env, r *getRow) bool {
	m, remote, n := &f.reply, e.Links.IncarnationOf(r.peer), int(f.reply.HitChunks)
	if !m.HasExt || n == 0 || n > r.keyCount()-int(r.presentCount) || m.Ext.Grant == 0 || len(m.RemoteIndexes) != n ||
		len(m.Ext.Generations) != n {
		return false
	}
	for i, index := range m.RemoteIndexes {
		buffer, ok := remote.FindBuffer(effects.BufferID(m.RemoteUUIDs[i]))
		if !ok || index < 0 || index >= int64(buffer.Pages) {
			return false
		}
	}
	return true
}

// startRead takes pages for the lent chunks, all or none, and starts the read. The read ends before the loan
// does, by this node's clock from before the request (M4). Chunks that arrived here meanwhile are not read. If there
// is no memory for the rest, the get ends with NoMemory.
func (f *Requester) startRead(e *flow.Env, h table.Handle, r *getRow) {
	m := &f.reply
	f.keys = f.keys[:0]
	for i := range m.HitChunks {
		f.keys = append(f.keys, r.keyAt(int(r.presentCount+i)))
	}
	if !f.mayTakePages(e, f.keys[0]) || !e.Landings.HasRoom(&e.Env, &e.Store, len(f.keys)) {
		f.failNoPages(e, h, r)
		return
	}
	p := e.Landings.PlanKeys(&e.Env, &e.Store, ownClass, f.keys, m.Ext.Sums, e.Cfg.Layout.TokenCount(), true)
	if !p.FitsPool(&e.Env, &e.Store, e.LandingPool(), ownClass) {
		p.EndFills(&e.Env, &e.Store)
		f.failNoPages(e, h, r)
		return
	}
	if p.PagesNeeded() == 0 {
		e.Out.Mark(Marks.CameElsewhere)
		f.finishGet(e, h, r, f.completionCode(r))
		return
	}
	f.recordPassing(e)
	r.readUntil = e.AccessEnd(r.sentAt, e.StatedLease(uint64(m.LeaseNS())))
	x, pages := e.Landings.BeginGrant(&e.Env, p, e.LandingPool(), landing.Purpose{
		Owner: kernel.OwnerP2PRequester, Class: ownClass, Peer: r.peerID, Request: r.requestHash, CommitBy: r.readUntil, Expires: r.readUntil,
	})
	// The deadlines of the get and of the transfer end the landing.
	e.Landings.StopDeadline(&e.Env, x)
	f.pairs = f.pairs[:0]
	for i := range p.Keys {
		if at := &p.Keys[i]; at.NeedsPage() {
			f.pairs = append(f.pairs, effects.Pair{Local: pages[at.Page], Remote: effects.RemotePage{
				Buffer: effects.BufferID(m.RemoteUUIDs[i]), Index: uint32(m.RemoteIndexes[i]),
				Sum: effects.SumAt(m.Ext.Sums, i), Generation: effects.Generation(m.Ext.Generations[i]),
			}})
		}
	}
	r.phase, r.writeGrant, r.lentChunks = getReading, x.ID, m.HitChunks
	e.Out.Publish(pages)
	e.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: uint32(len(pages)), ID: uint64(x.ID), Peer: r.peerID})
	currentLink, currentID := e.Links.IncarnationOf(r.peer).Link()
	r.transfer.Begin(&e.Env, effects.Transfer{
		Link: currentLink, Peer: currentID, Grant: effects.GrantID(r.readGrant), Read: true, Pairs: f.pairs, Since: r.firstSentAt,
		NotAfter: min(r.deadline, r.readUntil),
	}, getRef(kindTransfer, h))
}

// mayTakePages reports whether pages for chunks of the tenant of a key may be taken before the allocation requests that
// wait. Nothing waits for pages of the device pool.
func (f *Requester) mayTakePages(e *flow.Env, key []byte) bool {
	if e.LandingPool() != e.Pool {
		return true
	}
	waiting, _ := e.Commands.FirstReserve(&e.Env)
	return waiting == 0 && e.Pending.CanServeNow(&e.Env, ownClass, effects.Tenant(protocol.TenantOf(key)))
}

// recordPassing records that pages are taken before allocation requests that may be waiting.
func (f *Requester) recordPassing(e *flow.Env) {
	if e.LandingPool() == e.Pool {
		e.Pending.CountEnginePass(&e.Env)
	}
}

// noPagesReason returns the reason for a get without memory for its chunks.
func noPagesReason(e *flow.Env, chunks [][]byte) *effects.Why {
	pool, keys, tenant := e.LandingPool(), len(chunks), effects.Tenant(protocol.TenantOf(chunks[0]))
	if !pool.FitsTenant(tenant, uint32(keys)) {
		return flow.TenantShareReason(pool, tenant, flow.FormatCount(keys)+" chunks")
	}
	if pool == e.Pool {
		return flow.NoPagesReason(&e.Env, keys)
	}
	return &effects.Why{
		Field: "p2p_npu_buffer_size", Ours: flow.FormatCount(pool.FreePages()) + " of " + flow.FormatCount(pool.TotalPages()) + " pages free",
		Theirs: flow.FormatCount(keys) + " chunks",
		Remedy: "release what was got, ask for fewer at a time, or enlarge p2p_npu_buffer_size",
	}
}

// failNoPages ends a get without memory. A later get may succeed.
func (f *Requester) failNoPages(e *flow.Env, h table.Handle, r *getRow) {
	e.Out.Mark(Marks.NoRoom)
	r.setReason(effects.NoMemory, *noPagesReason(e, f.keys))
	f.finishGet(e, h, r, effects.NoMemory)
}

// completionCode returns the outcome of a get that fetched everything that the peer has: OK if that is everything that
// was requested, otherwise NotFound.
func (f *Requester) completionCode(r *getRow) effects.Code {
	if int(f.reply.HitChunks)+int(r.presentCount) == r.keyCount() {
		return effects.OK
	}
	return effects.NotFound
}

// onTransferDone handles the end of the read. If the outcome was delivered before (by a deadline or an abort), the
// chunks are not used.
func (f *Requester) onTransferDone(e *flow.Env, h table.Handle, ev *effects.TransferDone) {
	r := f.gets.Get(h)
	code := ev.Code
	switch {
	case code == effects.PeerLost || code == effects.Stale:
		if currentLink, _ := e.Links.IncarnationOf(r.peer).Link(); r.transfer.UsesLink(currentLink) {
			e.Links.FailPeer(&e.Env, r.peer, code, effects.Why{
				Stage: effects.StageTransfer, Field: "data plane", Theirs: "gone",
			})
		}
	case code == effects.OK && e.Cfg.Leased && ev.At > r.readUntil:
		// The plane did not observe the read: the pages may have been reused by then (M4).
		e.Out.Mark(Marks.ReadLate)
		code = effects.Expired
	}
	if code != effects.OK {
		e.Out.Mark(Marks.ReadFailed)
		r.setReason(code, effects.Why{Stage: effects.StageTransfer, Field: "data plane", Ours: code.String()})
	}
	if !r.transfer.OnDone(ev) {
		e.Out.Mark(Marks.Unsettled)
		r.phase = getSettling
		e.Landings.QuarantinePages(&e.Env, e.Landings.Find(r.writeGrant))
		if code == effects.OK {
			code = effects.Expired
		}
		f.deliverOutcome(e, r, code)
		return
	}
	if code == effects.OK && !r.delivered {
		x := e.Landings.Find(r.writeGrant)
		e.Landings.LandAll(&e.Env, &e.Store, x, e.IsLandingWanted(x))
		if int(r.lentChunks)+int(r.presentCount) < r.keyCount() {
			code = effects.NotFound
		}
	}
	f.endWriteGrant(e, r)
	f.finishGet(e, h, r, code)
}

// onSettled handles the late notice that nothing stores into the pages any more.
func (f *Requester) onSettled(e *flow.Env, h table.Handle) {
	r := f.gets.Get(h)
	r.transfer.OnSettled()
	f.endWriteGrant(e, r)
	f.queueDone(e, h, r)
}

// endWriteGrant ends the grant of this node's pages. Pages that did not land become free.
func (f *Requester) endWriteGrant(e *flow.Env, r *getRow) {
	e.Landings.EndGrant(&e.Env, &e.Store, e.Landings.Find(r.writeGrant))
	r.writeGrant = 0
}

// finishGet delivers the outcome of a get, if necessary, and then gives the loan back.
func (f *Requester) finishGet(e *flow.Env, h table.Handle, r *getRow, code effects.Code) {
	f.deliverOutcome(e, r, code)
	f.queueDone(e, h, r)
}

// queueDone queues the done message for the loan, so that the owner need not wait for the end of the loan's time.
// Invariant: nothing of this node reads under the loan any more.
func (f *Requester) queueDone(e *flow.Env, h table.Handle, r *getRow) {
	if r.readGrant == 0 {
		f.removeGet(e, h, r)
		return
	}
	r.phase, r.conn = getDoneQueued, 0
	f.gets.PushBack(&f.queueOf(r).doneMessages, h)
	f.sendQueued(e, r.peer)
}

// failInvalidReply ends a get with an invalid reply.
func (f *Requester) failInvalidReply(e *flow.Env, h table.Handle, r *getRow, why effects.Why) {
	r.setReason(effects.Malformed, why)
	why.Addr, why.Peer, why.Stage = r.peerAddr.InitAddr(), r.peerID, effects.StageAsk
	e.Out.Observe(effects.Observe{
		Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(r.operation), Peer: r.peerID, Why: &why,
	})
	f.finishGet(e, h, r, effects.Malformed)
}
