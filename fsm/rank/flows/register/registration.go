package register

import (
	"math"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/kernel/replies"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/rank/memory/transfer"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A registration is the request of a consumer rank, from its arrival until it is answered.
type registration struct {
	request effects.Request `snap:"skip"` // the latest attempt
	// withdrawal is a withdrawal that waits for the end of the write.
	withdrawal     effects.Request `snap:"skip"`
	clockEcho      int64           // clock reading of the latest attempt
	class          int
	peerID, selfID effects.Incarnation
	operation      uint64
	name           requestName
	engine         []byte
	rank           uint32
	// cacheSum is the Checksum of the consumer's numbers at the arrival of the request and this rank's numbers.
	cacheSum uint64
	blocks   blockLists
	// isTail says that the blocks are the last blocks of the request, and their positions are not stated.
	isTail bool
	grant  effects.GrantID
	// generations are the generations of the consumer's pages, in the order of the plan (M2).
	generations []uint64
	// grantedAfter is the earliest instant at which the pages may have been granted.
	grantedAfter effects.Time `snap:"skip"`
	// writeUntil is the instant at which writing must have stopped. Invariant: it is not later than the end of the
	// consumer's grant less LeaseGuard (M4).
	writeUntil effects.Time
	// replayEnd is the instant from which on a repetition of the request is too late by itself.
	replayEnd effects.Time
	batch     table.Handle   // zero: parked
	timer     kernel.TimerID `snap:"set"`
	phase     registrationPhase
	pairs     []effects.Pair
	transfer  transfer.Transfer
	link      effects.Link
	code      effects.Code
	arrivedAt effects.Time         `snap:"skip"` // when the first attempt was received
	matchedAt effects.Time         `snap:"skip"` // when a batch matched; zero: none has
	writeAt   effects.Time         `snap:"skip"` // when the write began; zero: it has not
	trace     effects.TraceContext `snap:"skip"` // the consumer's span
}

type registrationPhase uint8

const (
	regParked  registrationPhase = iota // no batch matches
	regLinking                          // waits for the link to the consumer's pages
	// The attempt to make the link has ended, and the registration waits for its turn.
	regLinkTried
	regWriting
	// The write has ended, but something may still write.
	regSettling
	regPhaseCount
)

// isWriting reports whether a write of the registration may touch pages.
func (x *registration) isWriting() bool { return x.phase == regWriting || x.phase == regSettling }

func (p *Producer) registrationName(h table.Handle) *requestName { return &p.registrations.Get(h).name }

// handleMessage answers a message.
func (p *Producer) handleMessage(e *flow.Env, ev *effects.Received) {
	if ev.Request == 0 {
		return
	}
	var err error
	wire := &e.Cfg.Wire
	switch protocol.PushKindOf(ev.Body) {
	case protocol.PushKindRegistration:
		if err = p.registration.Decode(ev.Body, wire); err == nil {
			p.handleRegistration(e, ev)
			return
		}
	case protocol.PushKindWithdrawal:
		if err = p.withdrawal.Decode(ev.Body, wire); err == nil {
			p.handleWithdrawal(e, ev)
			return
		}
	case protocol.PushKindKeep:
		if err = p.keepMessage.Decode(ev.Body, wire); err == nil {
			p.handleKeep(e, ev)
			return
		}
	case protocol.PushKindUnknown:
	}
	e.Out.Mark(Marks.RegistrationMalformed)
	why := effects.Why{Field: "message", Ours: "a message about registrations", Theirs: "another message",
		Remedy: "check which program sends messages to pd_peer_alloc_port"}
	if err != nil {
		why = link.DecodeReason(err)
	}
	why.Stage = effects.StageAsk
	e.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(ev.Conn), Why: &why})
	p.sendReply(e, ev.Request, effects.Incarnation{}, 0, 0, effects.Malformed, &why)
}

// sendReply answers a message. The argument selfID is the incarnation under which the sender knows this node.
func (p *Producer) sendReply(e *flow.Env, request effects.Request, selfID effects.Incarnation, operation uint64, echo int64,
	code effects.Code, why *effects.Why) {
	if request == 0 {
		return
	}
	p.endMessage = protocol.PushEnd{
		Version: link.VersionMax, Incarnation: protocol.UUID(selfID), Operation: operation, Code: uint32(code),
		Stamps: protocol.Stamps{ClockNS: int64(e.Now), EchoNS: echo},
	}
	if code != effects.OK && why != nil {
		// Codes that only a data plane returns have no reason of their own.
		if why.Field == "" && why.Remedy == "" {
			why.Field, why.Ours = "data plane", code.String()
		}
		p.endMessage.Reason = why.Reason()
	}
	e.Out.Reply(effects.Reply{Request: request, Body: e.Out.Cut(p.endMessage.Append(e.Out.Arena()))})
}

// recordTime returns for how long a registration may lead to a write after its grant, and therefore for how long the end
// of its operation is remembered: a copy of the registration that was delayed would otherwise write into pages that the
// consumer has given away since. The consumer states the lease, and RegisterTimeout bounds it.
func (p *Producer) recordTime(e *flow.Env, leaseNS uint64) effects.Duration {
	return effects.Duration(min(leaseNS, uint64(p.cfg.RegisterTimeout+e.Cfg.LeaseGuard)))
}

// handleRegistration handles a registration.
func (p *Producer) handleRegistration(e *flow.Env, ev *effects.Received) {
	m := &p.registration
	peerID, selfID := effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)
	echo := m.Ext.Stamps.ClockNS
	if why := link.CheckRole(&e.Env, ev); why != nil {
		p.refuseRegistration(e, ev.Request, selfID, effects.Forbidden, why)
		return
	}
	class, identified := 0, effects.Stale
	if m.HasExt {
		class, identified = e.Links.IdentifyPeer(&e.Env, ev, peerID, selfID)
	}
	if identified != effects.OK {
		e.Out.Mark(Marks.Stranger)
		p.refuseRegistration(e, ev.Request, selfID, identified, flow.UnidentifiedReason(identified))
		return
	}
	// A registration in progress comes first, because its answer says that nothing writes, whatever has happened to
	// the link since.
	if h := p.findRegistration(peerID, m.Ext.Operation); h != 0 {
		e.Out.Mark(Marks.RegisteredAgain)
		x := p.registrations.Get(h)
		x.request, x.clockEcho = ev.Request, echo
		return
	}
	if w := p.replays.Find(peerID, m.Ext.Operation, m.Ext.Attempt); w != nil {
		e.Out.Mark(Marks.AnsweredAgain)
		p.sendReply(e, ev.Request, selfID, m.Ext.Operation, echo, w.Code, endReason(w.Code))
		return
	}
	if e.Links.IncarnationByClass(class).HasLostLink() {
		e.Out.Mark(Marks.Stranger)
		p.refuseRegistration(e, ev.Request, selfID, effects.Stale, flow.LinkLostReason())
		return
	}
	replayEnd := e.Now.Add(p.recordTime(e, m.Ext.LeaseNS))
	if code, why := p.checkRegistration(e, class, peerID); code != effects.OK {
		p.addReplayRecord(e, class, peerID, m.Ext.Operation, code, replayEnd)
		p.refuseRegistration(e, ev.Request, selfID, code, why)
		return
	}
	h, x := p.registrations.Add()
	*x = registration{
		request: ev.Request, clockEcho: echo, class: class, peerID: peerID, selfID: selfID, operation: m.Ext.Operation, name: x.name,
		engine: append(x.engine[:0], m.EngineID...), blocks: x.blocks, grant: effects.GrantID(m.Ext.Grant),
		generations: append(x.generations[:0], m.Ext.Generations...), replayEnd: replayEnd, pairs: x.pairs[:0], rank: p.peerGeometry.Rank,
		cacheSum: Checksum(e.Links.IncarnationByClass(class).Geometry(), p.ownNumbers), isTail: m.Ext.Tail,
		arrivedAt: e.Now, trace: effects.TraceFromWire(m.Ext.Trace),
	}
	x.name.copyFrom(m.Ext.Transfer, m.RequestID)
	x.blocks.copyFrom(p.blocks)
	var anchored bool
	x.grantedAfter, anchored = e.Links.ConvertInstant(&e.Env, class, m.Ext.Stamps, m.Ext.GrantedNS)
	x.writeUntil = e.Now.Add(effects.Duration(min(m.Ext.PatienceNS, uint64(p.cfg.RegisterTimeout))))
	if anchored {
		lease := p.recordTime(e, m.Ext.LeaseNS)
		x.writeUntil = min(x.writeUntil, e.AccessEnd(x.grantedAfter, lease))
	}
	p.share.Acquire(class)
	p.byOperation.Add(table.Hash(x.operation, x.peerID[:]), h)
	p.parkedByName.addRow(e, &x.name, h)
	if e.Now >= x.writeUntil || e.Cfg.Leased && (!anchored || x.grantedAfter <= p.replays.Watermark(class)) {
		e.Out.Mark(Marks.TooLate)
		p.finishRegistration(e, h, effects.Expired, tooLateReason())
		return
	}
	e.Timers.Set(&x.timer, x.writeUntil, producerRef(kindRegistration, h))
	p.matchBatch(e, h, x)
}

// findRegistration returns the unanswered registration of an operation, or zero.
func (p *Producer) findRegistration(peerID effects.Incarnation, operation uint64) table.Handle {
	for at := p.byOperation.Find(table.Hash(operation, peerID[:])); at.Found(); at = p.byOperation.Next(at) {
		if x := p.registrations.Get(at.Handle()); x.peerID == peerID && x.operation == operation {
			return at.Handle()
		}
	}
	return 0
}

// checkRegistration checks a registration, and decodes its blocks into p.blocks and the consumer's geometry into
// p.peerGeometry.
func (p *Producer) checkRegistration(e *flow.Env, class int, peerID effects.Incarnation) (effects.Code, *effects.Why) {
	m := &p.registration
	switch {
	case e.Draining:
		return effects.Draining, endReason(effects.Draining)
	case m.Ext.Operation == 0:
		return effects.Invalid, &effects.Why{
			Field: "kvf_op", Ours: "a number above 0", Theirs: "none", Remedy: "number each registration",
		}
	case len(m.Remote.EngineID) > 0 && string(m.Remote.EngineID) != p.cfg.EngineID:
		e.Out.Mark(Marks.OtherEngine)
		return effects.Mismatch, &effects.Why{
			Field: "remote_engine_id", Theirs: effects.SanitizeText(m.Remote.EngineID), Ours: p.cfg.EngineID,
			Remedy: "route the request to the engine that the request names",
		}
	}
	peerNumbers := e.Links.IncarnationByClass(class).Geometry()
	peerGeometry, ok := decodeGeometry(peerNumbers, p.peerGeometry)
	if p.peerGeometry = peerGeometry; !ok || m.Ext.Caches != 0 && m.Ext.Caches != Checksum(peerNumbers, p.ownNumbers) {
		// A hello of either end was damaged, or belongs to another peer. Nothing is decided by it, and the consumer
		// repeats the handshake.
		e.Out.Mark(Marks.Stranger)
		return effects.Stale, cacheMismatchReason()
	}
	p.blocks = p.blocks[:0]
	for i, list := range m.Blocks {
		if len(list) == 0 && m.Ext.First[i] == m.Ext.Ends[i] {
			continue // Lists are indexed by group, and this group is not registered.
		}
		x := geometry.Blocks{Group: uint16(i), First: m.Ext.First[i], End: m.Ext.Ends[i]}
		for _, n := range list {
			x.Logical = append(x.Logical, uint32(min(n, 1<<32-1)))
		}
		p.blocks = append(p.blocks, x)
	}
	plan, err := geometry.MatchRanks(p.cfg.Geometry, &peerGeometry)
	if err != nil {
		return geometryReason(err)
	}
	n, err := plan.CountPages(p.blocks)
	if err != nil {
		return geometryReason(err)
	}
	buffer, listed := e.Links.IncarnationByClass(class).FindBuffer(e.Links.IncarnationByClass(class).FirstBuffer())
	switch {
	case n > uint64(e.Cfg.BatchMax):
		return effects.TooLarge, &effects.Why{
			Field: "local_block_ids", Theirs: flow.FormatCount(n) + " pages",
			Ours: "at most " + flow.FormatCount(e.Cfg.BatchMax) + " (limits.keys_per_batch)", Remedy: splitRemedy(),
		}
	case m.Ext.Tail && peerGeometry.PerLogical != p.cfg.Geometry.PerLogical:
		return effects.Mismatch, &effects.Why{
			Field: "physical_blocks_per_logical_kv_block", Theirs: flow.FormatCount(peerGeometry.PerLogical),
			Ours: flow.FormatCount(p.cfg.Geometry.PerLogical), Remedy: "give both engines the same block_size",
		}
	case !m.Ext.Tail && n != uint64(len(m.Ext.Generations)) || n > 0 && m.Ext.Grant == 0:
		return effects.Invalid, &effects.Why{
			Field: "kvf_gens", Theirs: flow.FormatCount(len(m.Ext.Generations)),
			Ours:   flow.FormatCount(n) + ", one for each page of these blocks that this rank writes, and kvf_grant",
			Remedy: "compute them from this rank's kvf_geometry",
		}
	// The consumer's hello arrived but not its list of buffers, and the consumer does not know that.
	case n > 0 && !listed:
		e.Out.Mark(Marks.Stranger)
		return effects.Stale, flow.UnknownIncarnationReason()
	case n > 0 && uint64(buffer.Pages) < peerGeometry.CountPages():
		e.Out.Mark(Marks.Stranger)
		return effects.Stale, &effects.Why{
			Field: "kvf_geometry", Theirs: flow.FormatCount(peerGeometry.CountPages()) + " pages",
			Ours: "as many as the buffer that it listed has", Remedy: "list the pages of register.blocks as one buffer",
		}
	case p.registrations.Full() || !p.share.HasRoom(class):
		e.Out.Mark(Marks.RegistrationsFull)
		return effects.TooMany, &effects.Why{
			Field: "register.registrations", Ours: flow.FormatCount(p.registrations.Max()) + ", less what waits, and what others may have,",
			Theirs: flow.FormatCount(p.share.CountOf(class)) + " of this peer's",
			Remedy: "retry when one has ended, or raise register.registrations",
		}
	}
	requested := requestName{transfer: m.Ext.Transfer, request: m.RequestID}
	if p.abortedRequests.IsAbandoned(e.Now, requested.recordHash(e)) {
		e.Out.Mark(Marks.Aborted)
		return effects.Cancelled, endReason(effects.Cancelled)
	}
	return effects.OK, nil
}

// refuseRegistration answers that a registration is not accepted, with the reason.
func (p *Producer) refuseRegistration(e *flow.Env, request effects.Request, selfID effects.Incarnation, code effects.Code,
	why *effects.Why) {
	m := &p.registration
	why.Stage = effects.StageAsk
	fact := effects.Observe{
		Fact: effects.FactAllocRefused, Code: code, Count: uint32(len(m.Ext.Generations)), ID: m.Ext.Operation,
		Peer: effects.Incarnation(m.Ext.Incarnation), Why: why,
	}
	fact.Report = e.TraceReport(effects.TraceFromWire(m.Ext.Trace), e.Now)
	e.Out.Observe(fact)
	p.sendReply(e, request, selfID, m.Ext.Operation, m.Ext.Stamps.ClockNS, code, why)
}

// addReplayRecord stores a replay record of an answered operation. From the answer on, the consumer may reuse its
// blocks, and on a leased plane only this record keeps a repetition of the request from being written again (M2).
func (p *Producer) addReplayRecord(e *flow.Env, class int, peerID effects.Incarnation, operation uint64, code effects.Code,
	replayEnd effects.Time) {
	if operation != 0 {
		p.replays.Add(replies.Record{
			Class: class, Peer: peerID, Operation: operation, AllAttempts: true, Code: code, SentAt: e.Now, Expires: replayEnd,
		})
	}
}

// finishRegistration ends a registration and sends the only answer. Invariant: nothing of the registration writes any
// more (M4).
func (p *Producer) finishRegistration(e *flow.Env, h table.Handle, code effects.Code, why *effects.Why) {
	x := p.registrations.Get(h)
	if x.isWriting() {
		panic("BUG: a registration is answered of which something writes")
	}
	e.Timers.Stop(&x.timer)
	switch x.phase {
	case regParked:
		p.parkedByName.removeRow(e, &x.name, h)
	case regLinking:
		p.registrations.Unlink(&p.waitingByClass[x.class], h)
	case regLinkTried:
		p.registrations.Unlink(&p.ready, h)
	case regWriting, regSettling, regPhaseCount:
	}
	p.sendReply(e, x.request, x.selfID, x.operation, x.clockEcho, code, why)
	p.sendReply(e, x.withdrawal, x.selfID, x.operation, x.clockEcho, code, why)
	p.addReplayRecord(e, x.class, x.peerID, x.operation, code, x.replayEnd)
	e.Out.Observe(effects.Observe{
		Fact: effects.FactRegistered, Code: code, Count: uint32(len(x.generations)), ID: uint64(x.grant), Peer: x.peerID, Why: why,
		Report: x.report(e),
	})
	p.share.Release(x.class)
	p.byOperation.Remove(table.Hash(x.operation, x.peerID[:]), h)
	batchHandle, rank, pages := x.batch, x.rank, uint32(0)
	if code == effects.OK {
		pages = uint32(len(x.generations))
	}
	x.pairs, x.generations = table.TrimSlice(x.pairs), table.TrimSlice(x.generations)
	x.blocks.releaseMemory()
	p.registrations.Remove(h)
	if batchHandle != 0 {
		p.recordRegistrationEnd(e, batchHandle, rank, pages, code, why)
	}
}

// report returns the times of a registration that is answered now: it waited for its batch, then for the link to the
// consumer's pages, then it was written.
func (x *registration) report(e *flow.Env) *effects.Report {
	report := effects.Report{Began: x.arrivedAt, Trace: effects.Trace{Context: x.trace}}
	for i := range x.pairs {
		report.Bytes += uint64(x.pairs[i].Local.Length)
	}
	matchedAt, writeAt := x.matchedAt, x.writeAt
	if matchedAt == 0 {
		matchedAt = e.Now
	}
	if writeAt == 0 {
		writeAt = e.Now
	}
	report.Phases[effects.PhaseQueue] = matchedAt.Sub(x.arrivedAt)
	report.Phases[effects.PhaseHandshake] = writeAt.Sub(matchedAt)
	report.Phases[effects.PhaseWire] = e.Now.Sub(writeAt)
	return e.Out.CopyReport(report)
}

// admitSender returns the class of the consumer that sent a withdrawal or an errand message. It reports false if the
// message was refused, because its sender lacks a role or is not the consumer in whose name it was sent.
func (p *Producer) admitSender(
	e *flow.Env, ev *effects.Received, peerID, selfID effects.Incarnation, operation uint64,
) (class int, ok bool) {
	if why := link.CheckRole(&e.Env, ev); why != nil {
		e.ReportForbidden(ev, effects.StageAsk, why)
		p.sendReply(e, ev.Request, selfID, operation, 0, effects.Forbidden, why)
		return 0, false
	}
	class, code := e.Links.IdentifyPeer(&e.Env, ev, peerID, selfID)
	if code == effects.OK {
		return class, true
	}
	e.Out.Mark(Marks.Stranger)
	why := flow.UnidentifiedReason(code)
	if code == effects.Forbidden {
		e.ReportForbidden(ev, effects.StageAsk, why)
	}
	p.sendReply(e, ev.Request, selfID, operation, 0, code, why)
	return 0, false
}

// handleWithdrawal handles a consumer's request to have its blocks back. The withdrawal of a registration that has not
// arrived prevents that registration from starting.
func (p *Producer) handleWithdrawal(e *flow.Env, ev *effects.Received) {
	m := &p.withdrawal
	peerID, selfID := effects.Incarnation(m.Incarnation), effects.Incarnation(m.To)
	class, ok := p.admitSender(e, ev, peerID, selfID, m.Operation)
	if !ok {
		return
	}
	if h := p.findRegistration(peerID, m.Operation); h != 0 {
		e.Out.Mark(Marks.TakenBack)
		x := p.registrations.Get(h)
		if x.withdrawal != 0 {
			e.Out.Mark(Marks.TakenBackAgain)
		}
		x.withdrawal = ev.Request
		if x.isWriting() {
			if x.phase == regWriting {
				x.transfer.Cancel(&e.Env)
			}
			return
		}
		p.finishRegistration(e, h, effects.Cancelled, endReason(effects.Cancelled))
		return
	}
	code := effects.Cancelled
	if w := p.replays.Find(peerID, m.Operation, 0); w != nil {
		code = w.Code
	} else {
		e.Out.Mark(Marks.TakenBackFirst)
		p.addReplayRecord(e, class, peerID, m.Operation, code, e.Now.Add(p.recordTime(e, math.MaxUint64)))
	}
	p.sendReply(e, ev.Request, selfID, m.Operation, 0, code, endReason(code))
}

// handleKeep handles an errand message of a consumer, about requests that the consumer has not registered yet.
func (p *Producer) handleKeep(e *flow.Env, ev *effects.Received) {
	m := &p.keepMessage
	selfID := effects.Incarnation(m.To)
	if _, ok := p.admitSender(e, ev, effects.Incarnation(m.Incarnation), selfID, 0); !ok {
		return
	}
	for _, id := range m.Keep {
		p.findBatches(e, id)
		for _, h := range p.found {
			p.renewBatch(e, h, p.batches.Get(h))
		}
	}
	for _, id := range m.Skip {
		p.unneededRequests.RecordRequest(e.Now, e.Store.HashKey(protocol.TrimRequestSuffix(id)), p.cfg.RegisterTimeout)
		p.unneededRequests.RecordRequest(e.Now, e.Store.HashKey(id), p.cfg.RegisterTimeout)
		n := p.findBatches(e, id)
		if h, unambiguous := p.pickMatch(&n); h != 0 && unambiguous {
			p.skipBatch(e, h)
		}
	}
	p.sendReply(e, ev.Request, selfID, 0, 0, effects.OK, nil)
}

// findBatches finds the batches of an id, which names a transfer or a request.
func (p *Producer) findBatches(e *flow.Env, id []byte) requestName {
	n := requestName{transfer: id}
	if p.found = p.batchesByName.findRows(e, &n, p.batchName, p.found[:0]); len(p.found) == 0 {
		n = requestName{request: id}
		p.found = p.batchesByName.findRows(e, &n, p.batchName, p.found)
	}
	return n
}

// skipBatch ends a batch that no consumer needs.
func (p *Producer) skipBatch(e *flow.Env, h table.Handle) {
	b := p.batches.Get(h)
	if b.isClosing || b.registrationCount > 0 {
		return // A consumer has registered nevertheless.
	}
	e.Out.Mark(Marks.NotNeeded)
	p.closeBatch(e, h, effects.OK, effects.Why{})
}
