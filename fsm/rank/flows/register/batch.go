package register

import (
	"bytes"
	"cmp"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/table"
)

// A batch is a Finished: blocks that are lent until each rank of a consumer has received its part.
type batch struct {
	ticket            effects.Ticket
	name              requestName
	blocks            blockLists
	pages             []effects.Page // claimed pages
	startedAt         effects.Time
	leaseEnd          effects.Time
	timer             kernel.TimerID `snap:"set"` // the lease
	isClosing         bool           // no write begins any more
	delivered         bool           // the outcome was delivered
	code              effects.Code   // of the first failed rank
	why               effects.Why
	registrationCount uint32 // registrations that belong to the batch
	sentPages         uint32 // pages written
	// isBound says that a first registration has determined the consumer, which the next fields describe.
	isBound   bool
	engine    []byte
	request   []byte
	consumers geometry.Neighbours
	// repliedRanks are the consumer ranks that were answered, in order.
	repliedRanks []uint32
	// writes is the number of writes in flight, since is when the last change from or to 0 was, and written is the time for
	// which there was one before that. All are for the report.
	writes  uint32           `snap:"skip"`
	since   effects.Time     `snap:"skip"`
	written effects.Duration `snap:"skip"`
	trace   effects.Trace    `snap:"skip"`
}

// beginWrite and endWrite record for the report that a registration of the batch is being written, and is no more.
func (b *batch) beginWrite(now effects.Time) {
	if b.writes++; b.writes == 1 {
		b.since = now
	}
}

func (b *batch) endWrite(now effects.Time) {
	if b.writes--; b.writes == 0 {
		b.written += now.Sub(b.since)
	}
}

// report returns the times of a loan that ends now: it waited for registrations, or some were written.
func (b *batch) report(e *flow.Env) *effects.Report {
	report := effects.Report{Began: b.startedAt, Trace: b.trace}
	written := b.written
	if b.writes > 0 {
		written += e.Now.Sub(b.since)
	}
	report.Phases[effects.PhaseQueue] = e.Now.Sub(b.startedAt) - written
	report.Phases[effects.PhaseWire] = written
	return e.Out.CopyReport(report)
}

// startBatch handles a Finished. A Finished that cannot be accepted is refused at once and changes nothing.
func (p *Producer) startBatch(e *flow.Env, t effects.Ticket, x *Finished) {
	code, why := p.addBatch(e, t, x)
	if code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, why)
	}
}

func (p *Producer) addBatch(e *flow.Env, t effects.Ticket, x *Finished) (effects.Code, *effects.Why) {
	if code, why := checkNames(e, x.Request, x.Transfer, x.Lease); code != effects.OK {
		return code, why
	}
	n := requestName{transfer: x.Transfer, request: x.Request}
	if p.unneededRequests.IsAbandoned(e.Now, n.recordHash(e)) {
		e.Out.Mark(Marks.NotNeeded)
		e.Out.Deliver(effects.Deliver{Ticket: t, Skipped: 1})
		return effects.OK, nil
	}
	p.found = p.batchesByName.findRows(e, &n, p.batchName, p.found[:0])
	for _, h := range p.found {
		if b := p.batches.Get(h); b.name.likenessTo(&n) == nameExact {
			return effects.Invalid, &effects.Why{
				Field: "Request", Theirs: effects.SanitizeText(x.Request), Ours: "a name that no lent request has",
				Remedy: "finish each request once, or end what is lent by Aborted before",
			}
		}
	}
	if p.batches.Full() {
		e.Out.Mark(Marks.BatchesFull)
		return effects.TooMany, &effects.Why{
			Field: "register.batches", Ours: flow.FormatCount(p.batches.Max()) + ", and as many are lent",
			Remedy: "retry when one has ended, or raise register.batches",
		}
	}
	var code effects.Code
	var why *effects.Why
	p.pages, p.blocks = p.pages[:0], p.blocks[:0]
	hasBlocks, otherStage := false, false
	for _, list := range x.Blocks { // An engine names blocks of all groups at each stage.
		if len(list.Logical) > 0 && p.cfg.Geometry.Stages > 1 && !hasGroup(p.cfg.Geometry, list.Group) {
			otherStage = true
			continue
		}
		hasBlocks = hasBlocks || len(list.Logical) > 0
		p.blocks = append(p.blocks, list)
	}
	if hasBlocks || !otherStage {
		if p.pages, code, why = claimPages(e, &p.fullPlan, p.blocks, p.pages); code != effects.OK {
			return code, why
		}
	}
	h, b := p.batches.Add()
	*b = batch{
		ticket: t, name: b.name, blocks: b.blocks, pages: append(b.pages[:0], p.pages...), startedAt: e.Now,
		leaseEnd: e.Now.Add(cmp.Or(x.Lease, p.cfg.RegistrationLease)), engine: b.engine[:0], request: b.request[:0],
		repliedRanks: b.repliedRanks[:0], trace: x.Trace,
	}
	b.name.copyFrom(x.Transfer, x.Request)
	b.blocks.copyFrom(p.blocks)
	p.batchesByName.addRow(e, &b.name, h)
	e.Tickets.Add(t, producerRef(kindBatch, h))
	e.Timers.Set(&b.timer, b.leaseEnd, producerRef(kindBatch, h))
	if len(b.pages) > 0 {
		e.Out.Publish(b.pages) // Readers of the pages compare this generation (M2, M3).
	}
	p.matchParked(e, h, b)
	return effects.OK, nil
}

func (p *Producer) batchName(h table.Handle) *requestName { return &p.batches.Get(h).name }

// renewBatch extends the lease of a batch, up to the longest lease in total. It never shortens the lease.
func (p *Producer) renewBatch(e *flow.Env, h table.Handle, b *batch) {
	if b.isClosing {
		return
	}
	until := min(e.Now.Add(p.cfg.extension()), b.startedAt.Add(e.Cfg.ReadLeaseMax))
	if until <= b.leaseEnd {
		return
	}
	b.leaseEnd = until
	e.Timers.Stop(&b.timer)
	e.Timers.Set(&b.timer, until, producerRef(kindBatch, h))
}

// abortRequest handles an Aborted: the engine will not finish this request.
func (p *Producer) abortRequest(e *flow.Env, t effects.Ticket, x *Aborted) {
	if code, why := checkNames(e, x.Request, x.Transfer, 0); code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, why)
		return
	}
	n := requestName{transfer: x.Transfer, request: x.Request}
	p.abortedRequests.RecordRequest(e.Now, n.recordHash(e), p.cfg.RegisterTimeout)
	// A consumer may register without the name of the transfer.
	p.abortedRequests.RecordRequest(e.Now, e.Store.HashKey(n.baseName()), p.cfg.RegisterTimeout)
	p.closeNamed(e, &n, effects.Cancelled)
	p.found = p.parkedByName.findRows(e, &n, p.registrationName, p.found[:0])
	for _, h := range p.found { // The loop body does not use p.found for another search.
		if p.registrations.Get(h) != nil {
			e.Out.Mark(Marks.Aborted)
			p.finishRegistration(e, h, effects.Cancelled, endReason(effects.Cancelled))
		}
	}
	engine.DeliverOK(&e.Env, t)
}

// closeNamed ends the batch of a name, if the name is unambiguous.
func (p *Producer) closeNamed(e *flow.Env, n *requestName, code effects.Code) {
	p.found = p.batchesByName.findRows(e, n, p.batchName, p.found[:0])
	h, unambiguous := p.pickMatch(n)
	if h != 0 && unambiguous && !p.batches.Get(h).isClosing {
		p.closeBatch(e, h, code, effects.Why{})
	}
}

// pickMatch returns the batch in p.found that matches a name, and whether the match is unambiguous.
func (p *Producer) pickMatch(n *requestName) (match table.Handle, unambiguous bool) {
	for _, h := range p.found {
		switch b := p.batches.Get(h); b.name.likenessTo(n) {
		case nameExact:
			return h, true
		case nameSimilar:
			if p.cfg.ExactIDs {
				continue
			}
			unambiguous, match = match == 0, h
		case nameDiffers:
		}
	}
	return match, unambiguous
}

// closeBatch ends the loan of a batch: from now on no write of its blocks begins. The registrations that are not
// being written are answered. The outcome is delivered now, and the blocks return to the engine when nothing reads
// them.
func (p *Producer) closeBatch(e *flow.Env, h table.Handle, code effects.Code, why effects.Why) {
	b := p.batches.Get(h)
	b.isClosing = true
	if b.code == effects.OK {
		b.code, b.why = code, why
	}
	e.Timers.Stop(&b.timer)
	p.batchesByName.removeRow(e, &b.name, h)
	if b.registrationCount > 0 {
		e.Work.SpendLooks(int(p.registrations.Slots()))
		for slot := range p.registrations.Slots() {
			row := p.registrations.At(slot)
			if x := p.registrations.Get(row); x != nil && x.batch == h && !x.isWriting() {
				p.finishRegistration(e, row, code, &why)
			}
		}
	}
	p.deliverOutcome(e, h, b)
}

// deliverOutcome delivers the outcome of a batch, and returns the blocks if nothing reads them.
func (p *Producer) deliverOutcome(e *flow.Env, h table.Handle, b *batch) {
	b.delivered = true
	e.Tickets.Remove(b.ticket)
	d := effects.Deliver{Ticket: b.ticket, Code: b.code, Held: b.registrationCount > 0, Sent: b.sentPages}
	if b.code != effects.OK {
		why := b.why
		if why.Stage == effects.StageNone {
			why.Stage = effects.StageTransfer
		}
		d.Why = &why
	}
	e.Out.Observe(effects.Observe{
		Fact: effects.FactWritten, Code: b.code, Count: b.sentPages, ID: uint64(b.ticket), Why: d.Why, Report: b.report(e),
	})
	if !d.Held {
		releasePages(e.Pool, b.pages)
	}
	e.Out.Deliver(d)
	if !d.Held {
		p.removeBatch(h, b)
	}
}

func (p *Producer) removeBatch(h table.Handle, b *batch) {
	b.pages = table.TrimSlice(b.pages)
	b.blocks.releaseMemory()
	p.batches.Remove(h)
}

// recordRegistrationEnd records the end of a registration of a batch, and ends the batch after the last registration.
func (p *Producer) recordRegistrationEnd(e *flow.Env, h table.Handle, rank uint32, pages uint32, code effects.Code,
	why *effects.Why) {
	b := p.batches.Get(h)
	b.registrationCount--
	b.repliedRanks = append(b.repliedRanks, rank)
	b.sentPages += pages
	if code != effects.OK && b.code == effects.OK && !b.isClosing {
		b.code = code
		if why != nil {
			b.why = *why
		}
	}
	switch {
	case b.delivered && b.registrationCount == 0:
		releasePages(e.Pool, b.pages)
		e.Out.Return(b.ticket)
		p.removeBatch(h, b)
	case !b.isClosing && b.registrationCount == 0 && uint64(len(b.repliedRanks)) == b.consumers.Len():
		b.isClosing = true
		e.Timers.Stop(&b.timer)
		p.batchesByName.removeRow(e, &b.name, h)
		p.deliverOutcome(e, h, b)
	}
}

// bindConsumer checks that a batch may be written to a consumer rank. The first registration binds the batch to a
// consumer.
func (b *batch) bindConsumer(e *flow.Env, ownGeometry, peerGeometry *geometry.Geometry, engine, request []byte) (effects.Code,
	*effects.Why) {
	consumers, err := geometry.ConsumersOf(ownGeometry, peerGeometry.Ranks)
	if err != nil {
		return geometryReason(err)
	}
	switch {
	case !consumers.Has(0, peerGeometry.Rank):
		return effects.Mismatch, &effects.Why{
			Field: "register.tp_rank", Theirs: flow.FormatCount(peerGeometry.Rank),
			Ours:   "a consumer rank that has a part of this rank's heads",
			Remedy: "register at the ranks that geometry.ProducersOf names",
		}
	case !b.isBound:
		b.isBound, b.consumers = true, consumers
		b.engine, b.request = append(b.engine[:0], engine...), append(b.request[:0], request...)
	case !bytes.Equal(b.engine, engine) || !bytes.Equal(b.request, request) || b.consumers != consumers:
		e.Out.Mark(Marks.OtherConsumer)
		return effects.Refused, &effects.Why{
			Field: "request_id", Theirs: effects.SanitizeText(request),
			Ours:   "taken by another one, of engine " + effects.SanitizeText(b.engine) + ",",
			Remedy: "give each transfer a name of its own",
		}
	}
	for _, rank := range b.repliedRanks {
		if rank == peerGeometry.Rank {
			e.Out.Mark(Marks.RankTwice)
			return effects.Ended, &effects.Why{
				Field: "register.tp_rank", Theirs: flow.FormatCount(rank), Ours: "one that had its answer under another kvf_op,",
				Remedy: "register a request once at each rank",
			}
		}
	}
	return effects.OK, nil
}
