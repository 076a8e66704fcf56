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
	ticket  effects.Ticket
	name    name
	blocks  lists
	pages   []effects.Page // claimed pages
	began   effects.Time
	ends    effects.Time
	timer   kernel.TimerID `snap:"set"` // the lease
	closing bool           // no write begins any more
	told    bool           // the outcome was delivered
	code    effects.Code   // of the first failed rank
	why     effects.Why
	rows    uint32 // registrations that belong to the batch
	sent    uint32 // pages written
	// bound says that a first registration has determined the consumer, which the next fields describe.
	bound     bool
	engine    []byte
	request   []byte
	consumers geometry.Neighbours
	// ranks are the consumer ranks that were answered, in order.
	ranks []uint32
}

// lend handles a Finished. A Finished that cannot be accepted is refused at once and changes nothing.
func (p *Producer) lend(e *flow.Env, t effects.Ticket, x *Finished) {
	code, why := p.beginBatch(e, t, x)
	if code != effects.OK {
		engine.TurnDown(&e.Env, t, code, why)
	}
}

func (p *Producer) beginBatch(e *flow.Env, t effects.Ticket, x *Finished) (effects.Code, *effects.Why) {
	if code, why := checkNames(e, x.Request, x.Transfer, x.Lease); code != effects.OK {
		return code, why
	}
	n := name{transfer: x.Transfer, request: x.Request}
	if p.unneeded.Has(e.Now, n.remembered(e)) {
		e.Out.Mark(Marks.NotNeeded)
		e.Out.Deliver(effects.Deliver{Ticket: t, Skipped: 1})
		return effects.OK, nil
	}
	p.found = p.named.find(e, &n, p.batchName, p.found[:0])
	for _, h := range p.found {
		if b := p.batches.Get(h); b.name.like(&n) == exact {
			return effects.Invalid, &effects.Why{
				Field: "Request", Theirs: effects.Words(x.Request), Ours: "the name of none that is lent already",
				Remedy: "finish each request once, or end what is lent by Aborted before",
			}
		}
	}
	if p.batches.Full() {
		e.Out.Mark(Marks.BatchesFull)
		return effects.TooMany, &effects.Why{
			Field: "register.batches", Ours: flow.Number(p.batches.Max()) + ", and as many are lent",
			Remedy: "retry when one has ended, or raise register.batches",
		}
	}
	var code effects.Code
	var why *effects.Why
	p.pages, p.blocks = p.pages[:0], p.blocks[:0]
	here, elsewhere := false, false
	for _, list := range x.Blocks { // An engine names blocks of all groups at each stage.
		if len(list.Logical) > 0 && p.cfg.Geometry.Stages > 1 && !hasGroup(p.cfg.Geometry, list.Group) {
			elsewhere = true
			continue
		}
		here = here || len(list.Logical) > 0
		p.blocks = append(p.blocks, list)
	}
	if here || !elsewhere {
		if p.pages, code, why = claim(e, &p.whole, p.blocks, p.pages); code != effects.OK {
			return code, why
		}
	}
	h, b := p.batches.Add()
	*b = batch{
		ticket: t, name: b.name, blocks: b.blocks, pages: append(b.pages[:0], p.pages...), began: e.Now,
		ends: e.Now.Add(cmp.Or(x.Lease, p.cfg.RegistrationLease)), engine: b.engine[:0], request: b.request[:0],
		ranks: b.ranks[:0],
	}
	b.name.keep(x.Transfer, x.Request)
	b.blocks.keep(p.blocks)
	p.named.add(e, &b.name, h)
	e.Tickets.Add(t, producerRef(kindBatch, h))
	e.Timers.Set(&b.timer, b.ends, producerRef(kindBatch, h))
	if len(b.pages) > 0 {
		e.Out.Publish(b.pages) // Readers of the pages compare this generation (M2, M3).
	}
	p.matchParked(e, h, b)
	return effects.OK, nil
}

func (p *Producer) batchName(h table.Handle) *name { return &p.batches.Get(h).name }

// extendBatch extends the lease of a batch, up to LeaseMax in total. It never shortens the lease.
func (p *Producer) extendBatch(e *flow.Env, h table.Handle, b *batch) {
	if b.closing {
		return
	}
	until := min(e.Now.Add(p.cfg.extension()), b.began.Add(e.Cfg.ReadLeaseMax))
	if until <= b.ends {
		return
	}
	b.ends = until
	e.Timers.Stop(&b.timer)
	e.Timers.Set(&b.timer, until, producerRef(kindBatch, h))
}

// abortNamed handles an Aborted: the engine will not finish this request.
func (p *Producer) abortNamed(e *flow.Env, t effects.Ticket, x *Aborted) {
	if code, why := checkNames(e, x.Request, x.Transfer, 0); code != effects.OK {
		engine.TurnDown(&e.Env, t, code, why)
		return
	}
	n := name{transfer: x.Transfer, request: x.Request}
	p.aborted.Note(e.Now, n.remembered(e), p.cfg.RegisterTimeout)
	// A consumer may register without the name of the transfer.
	p.aborted.Note(e.Now, e.Store.Hash(n.base()), p.cfg.RegisterTimeout)
	p.endNamed(e, &n, effects.Cancelled)
	p.found = p.parked.find(e, &n, p.rowName, p.found[:0])
	for _, h := range p.found { // The loop body does not use p.found for another search.
		if p.rows.Get(h) != nil {
			e.Out.Mark(Marks.Aborted)
			p.conclude(e, h, effects.Cancelled, ended(effects.Cancelled))
		}
	}
	engine.Agree(&e.Env, t)
}

// endNamed ends the batch of a name, if the name is unambiguous.
func (p *Producer) endNamed(e *flow.Env, n *name, code effects.Code) {
	p.found = p.named.find(e, n, p.batchName, p.found[:0])
	h, clear := p.matchFound(n)
	if h != 0 && clear && !p.batches.Get(h).closing {
		p.closeBatch(e, h, code, effects.Why{})
	}
}

// matchFound returns the batch in p.found that matches a name, and whether the match is unambiguous.
func (p *Producer) matchFound(n *name) (is table.Handle, clear bool) {
	for _, h := range p.found {
		switch b := p.batches.Get(h); b.name.like(n) {
		case exact:
			return h, true
		case alike:
			if p.cfg.ExactIDs {
				continue
			}
			clear, is = is == 0, h
		case unlike:
		}
	}
	return is, clear
}

// closeBatch ends the loan of a batch: from now on no write of its blocks begins. The registrations that are not
// being written are answered. The outcome is delivered now, and the blocks return to the engine when nothing reads
// them.
func (p *Producer) closeBatch(e *flow.Env, h table.Handle, code effects.Code, why effects.Why) {
	b := p.batches.Get(h)
	b.closing = true
	if b.code == effects.OK {
		b.code, b.why = code, why
	}
	e.Timers.Stop(&b.timer)
	p.named.remove(e, &b.name, h)
	if b.rows > 0 {
		e.Work.Looks(int(p.rows.Slots()))
		for slot := range p.rows.Slots() {
			at := p.rows.At(slot)
			if x := p.rows.Get(at); x != nil && x.batch == h && !x.writes() {
				p.conclude(e, at, code, &why)
			}
		}
	}
	p.deliverBatch(e, h, b)
}

// deliverBatch delivers the outcome of a batch, and returns the blocks if nothing reads them.
func (p *Producer) deliverBatch(e *flow.Env, h table.Handle, b *batch) {
	b.told = true
	e.Tickets.Remove(b.ticket)
	d := effects.Deliver{Ticket: b.ticket, Code: b.code, Held: b.rows > 0, Sent: b.sent}
	if b.code != effects.OK {
		why := b.why
		if why.Stage == effects.StageNone {
			why.Stage = effects.StageTransfer
		}
		d.Why = &why
	}
	e.Out.Observe(effects.Observe{
		Fact: effects.FactWritten, Code: b.code, Count: b.sent, ID: uint64(b.ticket), Why: d.Why,
	})
	if !d.Held {
		unclaim(e.Pool, b.pages)
	}
	e.Out.Deliver(d)
	if !d.Held {
		p.forgetBatch(h, b)
	}
}

func (p *Producer) forgetBatch(h table.Handle, b *batch) {
	b.pages = table.Shed(b.pages)
	b.blocks.shed()
	p.batches.Remove(h)
}

// registrationEnded records the end of a registration of a batch, and ends the batch after the last registration.
func (p *Producer) registrationEnded(e *flow.Env, h table.Handle, rank uint32, pages uint32, code effects.Code,
	why *effects.Why) {
	b := p.batches.Get(h)
	b.rows--
	b.ranks = append(b.ranks, rank)
	b.sent += pages
	if code != effects.OK && b.code == effects.OK && !b.closing {
		b.code = code
		if why != nil {
			b.why = *why
		}
	}
	switch {
	case b.told && b.rows == 0:
		unclaim(e.Pool, b.pages)
		e.Out.Return(b.ticket)
		p.forgetBatch(h, b)
	case !b.closing && b.rows == 0 && uint64(len(b.ranks)) == b.consumers.Len():
		b.closing = true
		e.Timers.Stop(&b.timer)
		p.named.remove(e, &b.name, h)
		p.deliverBatch(e, h, b)
	}
}

// bind checks that a batch may be written to a consumer rank. The first registration binds the batch to a consumer.
func (b *batch) bind(e *flow.Env, own, theirs *geometry.Geometry, engine, request []byte) (effects.Code, *effects.Why) {
	near, err := geometry.Consumers(own, theirs.Ranks)
	if err != nil {
		return unpaired(err)
	}
	switch {
	case !near.Has(0, theirs.Rank):
		return effects.Mismatch, &effects.Why{
			Field: "register.tp_rank", Theirs: flow.Number(theirs.Rank),
			Ours:   "a consumer rank that has a part of this rank's heads",
			Remedy: "register at the ranks that geometry.Producers names",
		}
	case !b.bound:
		b.bound, b.consumers = true, near
		b.engine, b.request = append(b.engine[:0], engine...), append(b.request[:0], request...)
	case !bytes.Equal(b.engine, engine) || !bytes.Equal(b.request, request) || b.consumers != near:
		e.Out.Mark(Marks.OtherConsumer)
		return effects.Refused, &effects.Why{
			Field: "request_id", Theirs: effects.Words(request),
			Ours:   "taken by another one, of engine " + effects.Words(b.engine) + ",",
			Remedy: "give each transfer a name of its own",
		}
	}
	for _, rank := range b.ranks {
		if rank == theirs.Rank {
			e.Out.Mark(Marks.RankTwice)
			return effects.Ended, &effects.Why{
				Field: "register.tp_rank", Theirs: flow.Number(rank), Ours: "one that had its answer under another kvf_op,",
				Remedy: "register a request once at each rank",
			}
		}
	}
	return effects.OK, nil
}
