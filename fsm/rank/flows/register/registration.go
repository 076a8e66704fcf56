package register

import (
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
	asker effects.Request `snap:"skip"` // the latest attempt
	// off is a withdrawal that waits for the end of the write.
	off       effects.Request `snap:"skip"`
	echo      int64           // clock reading of the latest attempt
	class     int
	who, us   effects.Incarnation
	operation uint64
	name      name
	engine    []byte
	rank      uint32
	// caches is the Sum of the consumer's numbers at the arrival of the request and this rank's numbers.
	caches uint64
	blocks lists
	// tail says that the blocks are the last blocks of the request, and their positions are not stated.
	tail  bool
	grant effects.GrantID
	// lives are the generations of the consumer's pages, in the order of the plan (M2).
	lives []uint64
	// since is the earliest instant at which the pages may have been granted.
	since effects.Time `snap:"skip"`
	// until is the instant at which writing must have stopped. Invariant: it is not later than the end of the
	// consumer's grant less LeaseGuard (M4).
	until effects.Time
	// over is the instant from which on a repetition of the request is too late by itself.
	over  effects.Time
	batch table.Handle   // zero: parked
	timer kernel.TimerID `snap:"set"`
	phase regPhase
	pairs []effects.Pair
	write transfer.Transfer
	link  effects.Link
	code  effects.Code
}

type regPhase uint8

const (
	regParked  regPhase = iota // no batch matches
	regLinking                 // waits for the link to the consumer's pages
	// The attempt to make the link has ended, and the registration waits for its turn.
	regUnlinked
	regWriting
	// The write has ended, but something may still write.
	regSettling
	regPhases
)

// writes reports whether a write of the registration may touch pages.
func (x *registration) writes() bool { return x.phase == regWriting || x.phase == regSettling }

func (p *Producer) rowName(h table.Handle) *name { return &p.rows.Get(h).name }

// received answers a message.
func (p *Producer) received(e *flow.Env, ev *effects.Received) {
	if ev.Request == 0 {
		return
	}
	var err error
	wire := &e.Cfg.Wire
	switch protocol.PushWordOf(ev.Body) {
	case protocol.PushRegisters:
		if err = p.reg.Decode(ev.Body, wire); err == nil {
			p.onRegistration(e, ev)
			return
		}
	case protocol.PushWithdraws:
		if err = p.off.Decode(ev.Body, wire); err == nil {
			p.onWithdrawal(e, ev)
			return
		}
	case protocol.PushKeeps:
		if err = p.keep.Decode(ev.Body, wire); err == nil {
			p.onKeep(e, ev)
			return
		}
	case protocol.PushUnknown:
	}
	e.Out.Mark(Marks.RegistrationMalformed)
	why := effects.Why{Field: "message", Ours: "a word on registrations", Theirs: "something else",
		Remedy: "look which program speaks to pd_peer_alloc_port"}
	if err != nil {
		why = link.Undecodable(err)
	}
	why.Stage = effects.StageAsk
	e.Out.Observe(effects.Observe{Fact: effects.FactMalformed, Code: effects.Malformed, ID: uint64(ev.Conn), Why: &why})
	p.reply(e, ev.Request, effects.Incarnation{}, 0, 0, effects.Malformed, &why)
}

// reply answers a message. The argument us is the incarnation under which the sender knows this node.
func (p *Producer) reply(e *flow.Env, to effects.Request, us effects.Incarnation, operation uint64, echo int64,
	code effects.Code, why *effects.Why) {
	if to == 0 {
		return
	}
	p.end = protocol.PushEnd{
		Version: link.VersionMax, Incarnation: protocol.UUID(us), Operation: operation, Code: uint32(code),
		Stamps: protocol.Stamps{ClockNS: int64(e.Now), EchoNS: echo},
	}
	if code != effects.OK && why != nil {
		// Codes that only a data plane returns have no reason of their own.
		if why.Field == "" && why.Remedy == "" {
			why.Field, why.Ours = "data plane", code.String()
		}
		p.end.Reason = why.Reason()
	}
	e.Out.Reply(effects.Reply{Request: to, Body: e.Out.Cut(p.end.Append(e.Out.Arena()))})
}

// onRegistration handles a registration.
func (p *Producer) onRegistration(e *flow.Env, ev *effects.Received) {
	m := &p.reg
	who, us := effects.Incarnation(m.Ext.Incarnation), effects.Incarnation(m.Ext.To)
	echo := m.Ext.Stamps.ClockNS
	class, known := 0, false
	if m.HasExt {
		class, known = e.Links.Inbound(&e.Env, who, us)
	}
	if !known {
		e.Out.Mark(Marks.Stranger)
		p.refuse(e, ev.Request, us, effects.Stale, flow.UnknownLife())
		return
	}
	// A registration in progress comes first, because its answer says that nothing writes, whatever has happened to
	// the link since.
	if h := p.find(who, m.Ext.Operation); h != 0 {
		e.Out.Mark(Marks.RegisteredAgain)
		x := p.rows.Get(h)
		x.asker, x.echo = ev.Request, echo
		return
	}
	if w := p.said.Find(who, m.Ext.Operation, m.Ext.Attempt); w != nil {
		e.Out.Mark(Marks.AnsweredAgain)
		p.reply(e, ev.Request, us, m.Ext.Operation, echo, w.Code, ended(w.Code))
		return
	}
	if e.Links.OfClass(class).Gone() {
		e.Out.Mark(Marks.Stranger)
		p.refuse(e, ev.Request, us, effects.Stale, flow.Cut())
		return
	}
	over := e.Now.Add(e.Stated(m.Ext.LeaseNS))
	if code, why := p.admit(e, class, who); code != effects.OK {
		p.bury(e, class, who, m.Ext.Operation, code, over)
		p.refuse(e, ev.Request, us, code, why)
		return
	}
	h, x := p.rows.Add()
	*x = registration{
		asker: ev.Request, echo: echo, class: class, who: who, us: us, operation: m.Ext.Operation, name: x.name,
		engine: append(x.engine[:0], m.EngineID...), blocks: x.blocks, grant: effects.GrantID(m.Ext.Grant),
		lives: append(x.lives[:0], m.Ext.Generations...), over: over, pairs: x.pairs[:0], rank: p.theirs.Rank,
		caches: Sum(e.Links.OfClass(class).Geometry(), p.own), tail: m.Ext.Tail,
	}
	x.name.keep(m.Ext.Transfer, m.RequestID)
	x.blocks.keep(p.blocks)
	var anchored bool
	x.since, anchored = e.Links.Anchor(&e.Env, class, m.Ext.Stamps, m.Ext.GrantedNS)
	x.until = e.Now.Add(effects.Duration(min(m.Ext.PatienceNS, uint64(p.cfg.RegisterTimeout))))
	if anchored {
		lease := effects.Duration(min(m.Ext.LeaseNS, uint64(p.cfg.RegisterTimeout+e.Cfg.LeaseGuard)))
		x.until = min(x.until, x.since.Add(link.Shorter(lease, e.Cfg.DriftPPM)-e.Cfg.LeaseGuard))
	}
	p.share.Take(class)
	p.byWho.Add(table.Hash(x.operation, x.who[:]), h)
	p.parked.add(e, &x.name, h)
	if e.Now >= x.until || e.Cfg.Leased && (!anchored || x.since <= p.said.Watermark(class)) {
		e.Out.Mark(Marks.TooLate)
		p.conclude(e, h, effects.Expired, tooLate())
		return
	}
	e.Timers.Set(&x.timer, x.until, producerRef(kindRegistration, h))
	p.matchBatch(e, h, x)
}

// find returns the unanswered registration of an operation, or zero.
func (p *Producer) find(who effects.Incarnation, operation uint64) table.Handle {
	for at := p.byWho.Seek(table.Hash(operation, who[:])); at.Found(); at = p.byWho.Next(at) {
		if x := p.rows.Get(at.Handle()); x.who == who && x.operation == operation {
			return at.Handle()
		}
	}
	return 0
}

// admit checks a registration, and decodes its blocks into p.blocks and the consumer's geometry into p.theirs.
func (p *Producer) admit(e *flow.Env, class int, who effects.Incarnation) (effects.Code, *effects.Why) {
	m := &p.reg
	switch {
	case e.Draining:
		return effects.Draining, ended(effects.Draining)
	case m.Ext.Operation == 0:
		return effects.Invalid, &effects.Why{
			Field: "kvf_op", Ours: "a number above 0", Theirs: "none", Remedy: "number each registration",
		}
	case len(m.Remote.EngineID) > 0 && string(m.Remote.EngineID) != p.cfg.EngineID:
		e.Out.Mark(Marks.OtherEngine)
		return effects.Mismatch, &effects.Why{
			Field: "remote_engine_id", Theirs: effects.Words(m.Remote.EngineID), Ours: p.cfg.EngineID,
			Remedy: "route the request to the engine that it names",
		}
	}
	said := e.Links.OfClass(class).Geometry()
	theirs, ok := read(said, p.theirs)
	if p.theirs = theirs; !ok || m.Ext.Caches != 0 && m.Ext.Caches != Sum(said, p.own) {
		// A hello of either end was damaged, or belongs to another peer. Nothing is decided by it, and the consumer
		// repeats the handshake.
		e.Out.Mark(Marks.Stranger)
		return effects.Stale, otherCache()
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
	plan, err := geometry.Match(p.cfg.Geometry, &theirs)
	if err != nil {
		return unpaired(err)
	}
	n, err := plan.Count(p.blocks)
	if err != nil {
		return unpaired(err)
	}
	buffer, listed := e.Links.OfClass(class).Buffer(e.Links.OfClass(class).FirstBuffer())
	switch {
	case n > uint64(e.Cfg.BatchMax):
		return effects.TooLarge, &effects.Why{
			Field: "local_block_ids", Theirs: flow.Number(n) + " pages",
			Ours: "at most " + flow.Number(e.Cfg.BatchMax) + " (limits.keys_per_batch)", Remedy: cutIt(),
		}
	case m.Ext.Tail && theirs.PerLogical != p.cfg.Geometry.PerLogical:
		return effects.Mismatch, &effects.Why{
			Field: "physical_blocks_per_logical_kv_block", Theirs: flow.Number(theirs.PerLogical),
			Ours: flow.Number(p.cfg.Geometry.PerLogical), Remedy: "give both engines the same block_size",
		}
	case !m.Ext.Tail && n != uint64(len(m.Ext.Generations)) || n > 0 && m.Ext.Grant == 0:
		return effects.Invalid, &effects.Why{
			Field: "kvf_gens", Theirs: flow.Number(len(m.Ext.Generations)),
			Ours:   flow.Number(n) + ", one for each page of these blocks that this rank writes, and kvf_grant",
			Remedy: "compute them from this rank's kvf_geometry",
		}
	// The consumer's hello arrived but not its list of buffers, and the consumer does not know that.
	case n > 0 && !listed:
		e.Out.Mark(Marks.Stranger)
		return effects.Stale, flow.UnknownLife()
	case n > 0 && uint64(buffer.Pages) < theirs.Pages():
		e.Out.Mark(Marks.Stranger)
		return effects.Stale, &effects.Why{
			Field: "kvf_geometry", Theirs: flow.Number(theirs.Pages()) + " pages",
			Ours: "as many as the buffer that it listed has", Remedy: "list the pages of register.blocks as one buffer",
		}
	case p.rows.Full() || !p.share.May(class):
		e.Out.Mark(Marks.RegistrationsFull)
		return effects.TooMany, &effects.Why{
			Field: "register.registrations", Ours: flow.Number(p.rows.Max()) + ", less what waits, and what others may have,",
			Theirs: flow.Number(p.share.Of(class)) + " of this peer's",
			Remedy: "retry when one has ended, or raise register.registrations",
		}
	}
	name := name{transfer: m.Ext.Transfer, request: m.RequestID}
	if p.aborted.Has(e.Now, name.remembered(e)) {
		e.Out.Mark(Marks.Aborted)
		return effects.Cancelled, ended(effects.Cancelled)
	}
	return effects.OK, nil
}

// refuse answers that a registration is not accepted, with the reason.
func (p *Producer) refuse(e *flow.Env, to effects.Request, us effects.Incarnation, code effects.Code,
	why *effects.Why) {
	m := &p.reg
	why.Stage = effects.StageAsk
	e.Out.Observe(effects.Observe{
		Fact: effects.FactAllocRefused, Code: code, Count: uint32(len(m.Ext.Generations)), ID: m.Ext.Operation,
		Peer: effects.Incarnation(m.Ext.Incarnation), Why: why,
	})
	p.reply(e, to, us, m.Ext.Operation, m.Ext.Stamps.ClockNS, code, why)
}

// bury stores a replay record of an answered operation. From the answer on, the consumer may reuse its blocks, and on
// a leased plane only this record keeps a repetition of the request from being written again (M2).
func (p *Producer) bury(e *flow.Env, class int, who effects.Incarnation, operation uint64, code effects.Code,
	over effects.Time) {
	if operation != 0 {
		p.said.Say(replies.Said{
			Class: class, Peer: who, Operation: operation, Done: true, Code: code, When: e.Now, Over: over,
		})
	}
}

// conclude ends a registration and sends the only answer. Invariant: nothing of the registration writes any more
// (M4).
func (p *Producer) conclude(e *flow.Env, h table.Handle, code effects.Code, why *effects.Why) {
	x := p.rows.Get(h)
	if x.writes() {
		panic("BUG: a registration is answered of which something writes")
	}
	e.Timers.Stop(&x.timer)
	switch x.phase {
	case regParked:
		p.parked.remove(e, &x.name, h)
	case regLinking:
		p.rows.Unlink(&p.waits[x.class], h)
	case regUnlinked:
		p.rows.Unlink(&p.ready, h)
	case regWriting, regSettling, regPhases:
	}
	p.reply(e, x.asker, x.us, x.operation, x.echo, code, why)
	p.reply(e, x.off, x.us, x.operation, x.echo, code, why)
	p.bury(e, x.class, x.who, x.operation, code, x.over)
	e.Out.Observe(effects.Observe{
		Fact: effects.FactRegistered, Code: code, Count: uint32(len(x.lives)), ID: uint64(x.grant), Peer: x.who, Why: why,
	})
	p.share.Give(x.class)
	p.byWho.Remove(table.Hash(x.operation, x.who[:]), h)
	of, rank, pages := x.batch, x.rank, uint32(0)
	if code == effects.OK {
		pages = uint32(len(x.lives))
	}
	x.pairs, x.lives = table.Shed(x.pairs), table.Shed(x.lives)
	x.blocks.shed()
	p.rows.Remove(h)
	if of != 0 {
		p.registrationEnded(e, of, rank, pages, code, why)
	}
}

// onWithdrawal handles a consumer's request to have its blocks back. The withdrawal of a registration that has not
// arrived prevents that registration from starting.
func (p *Producer) onWithdrawal(e *flow.Env, ev *effects.Received) {
	m := &p.off
	who, us := effects.Incarnation(m.Incarnation), effects.Incarnation(m.To)
	class, known := e.Links.Inbound(&e.Env, who, us)
	if !known {
		e.Out.Mark(Marks.Stranger)
		p.reply(e, ev.Request, us, m.Operation, 0, effects.Stale, flow.UnknownLife())
		return
	}
	if h := p.find(who, m.Operation); h != 0 {
		e.Out.Mark(Marks.TakenBack)
		x := p.rows.Get(h)
		if x.off != 0 {
			e.Out.Mark(Marks.TakenBackAgain)
		}
		x.off = ev.Request
		if x.writes() {
			if x.phase == regWriting {
				x.write.Cancel(&e.Env)
			}
			return
		}
		p.conclude(e, h, effects.Cancelled, ended(effects.Cancelled))
		return
	}
	code := effects.Cancelled
	if w := p.said.Find(who, m.Operation, 0); w != nil {
		code = w.Code
	} else {
		e.Out.Mark(Marks.TakenBackFirst)
		p.bury(e, class, who, m.Operation, code, e.Now.Add(e.Cfg.ReadLeaseMax))
	}
	p.reply(e, ev.Request, us, m.Operation, 0, code, ended(code))
}

// onKeep handles an errand message of a consumer, about requests that the consumer has not registered yet.
func (p *Producer) onKeep(e *flow.Env, ev *effects.Received) {
	m := &p.keep
	us := effects.Incarnation(m.To)
	if _, known := e.Links.Inbound(&e.Env, effects.Incarnation(m.Incarnation), us); !known {
		e.Out.Mark(Marks.Stranger)
		p.reply(e, ev.Request, us, 0, 0, effects.Stale, flow.UnknownLife())
		return
	}
	for _, id := range m.Keep {
		p.findMeant(e, id)
		for _, h := range p.found {
			p.extendBatch(e, h, p.batches.Get(h))
		}
	}
	for _, id := range m.Skip {
		p.unneeded.Note(e.Now, e.Store.Hash(protocol.NixlBase(id)), p.cfg.RegisterTimeout)
		p.unneeded.Note(e.Now, e.Store.Hash(id), p.cfg.RegisterTimeout)
		n := p.findMeant(e, id)
		if h, clear := p.matchFound(&n); h != 0 && clear {
			p.skipBatch(e, h)
		}
	}
	p.reply(e, ev.Request, us, 0, 0, effects.OK, nil)
}

// findMeant finds the batches of an id, which names a transfer or a request.
func (p *Producer) findMeant(e *flow.Env, id []byte) name {
	n := name{transfer: id}
	if p.found = p.named.find(e, &n, p.batchName, p.found[:0]); len(p.found) == 0 {
		n = name{request: id}
		p.found = p.named.find(e, &n, p.batchName, p.found)
	}
	return n
}

// skipBatch ends a batch that no consumer needs.
func (p *Producer) skipBatch(e *flow.Env, h table.Handle) {
	b := p.batches.Get(h)
	if b.closing || b.rows > 0 {
		return // A consumer has registered nevertheless.
	}
	e.Out.Mark(Marks.NotNeeded)
	p.closeBatch(e, h, effects.OK, effects.Why{})
}
