package register

import (
	"cmp"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// ownClass is the fairness class of pages that are granted to producers: that of the node's own engine, because the
// engine requested the writes.
const ownClass = 0

// startReception handles a Register. A Register that cannot be accepted is refused at once and changes nothing.
func (c *Consumer) startReception(e *flow.Env, t effects.Ticket, x *Register) {
	code, why := c.addReception(e, t, x)
	if code != effects.OK {
		engine.RefuseCommand(&e.Env, t, code, why)
	}
}

func (c *Consumer) addReception(e *flow.Env, t effects.Ticket, x *Register) (effects.Code, *effects.Why) {
	producers, code, why := c.validateRegister(e, x)
	if code != effects.OK {
		return code, why
	}
	if c.receptions.Full() || c.parts.Len()+len(x.Producers) > c.parts.Max() {
		e.Out.Mark(Marks.ReceptionsFull)
		return effects.TooMany, &effects.Why{
			Field: "register.receptions", Ours: flow.FormatCount(c.receptions.Max()) + ", of " + flow.FormatCount(c.parts.Max()) +
				" producer ranks in all", Theirs: flow.FormatCount(c.receptions.Len()) + " are open, of " + flow.FormatCount(c.parts.Len()),
			Remedy: "retry when one has ended, or raise register.receptions",
		}
	}
	if !hasPeerRoom(e, x.Producers) {
		return effects.TooMany, noPeerReason(e)
	}
	if c.pages, code, why = claimPages(e, &c.fullPlan, x.Blocks, c.pages[:0]); code != effects.OK {
		return code, why
	}
	peers := c.peers[:0]
	for _, at := range x.Producers {
		peers = append(peers, e.Links.AcquirePeer(&e.Env, at.addr()))
	}
	c.peers = peers
	timeout := cmp.Or(x.Timeout, c.cfg.RegisterTimeout)
	h, r := c.receptions.Add()
	*r = reception{
		ticket: t, request: append(r.request[:0], x.Request...), transfer: append(r.transfer[:0], x.Transfer...),
		engine: append(r.engine[:0], x.Engine...), blocks: r.blocks, pages: append(r.pages[:0], c.pages...),
		parts: r.parts[:0], ranks: x.Ranks, stages: x.Stages, partCount: uint32(len(peers)), unfinishedParts: uint32(len(peers)),
		timeout: timeout, deadline: e.Now.Add(timeout), plans: r.plans[:0],
		trace: x.Trace, startedAt: e.Now, unsentParts: uint32(len(peers)),
	}
	r.blocks.copyFrom(x.Blocks)
	r.grantsEnd = r.deadline.Add(e.Cfg.LeaseGuard)
	e.Tickets.Add(t, consumerRef(timerReception, h))
	e.Timers.Set(&r.timer, r.deadline, consumerRef(timerReception, h))
	index := uint32(0)
	for stage, rank := range producers.All() {
		ph, p := c.parts.Add()
		c.lastOperation++
		*p = part{
			reception: h, producerIndex: index, stage: stage, rank: rank, peer: peers[index], operation: c.lastOperation, phase: partIdle,
		}
		r.parts, r.plans = append(r.parts, ph), append(r.plans, partPlan{})
		index++
	}
	c.keeps.finishExpects(e, c, x.Request, x.Transfer)
	// Starting a part may end the whole reception, for example if the peer is known to be unusable.
	for _, ph := range r.parts {
		if p := c.parts.Get(ph); p != nil && p.reception == h && !r.delivered {
			c.queuePart(e, ph, p)
		}
	}
	return effects.OK, nil
}

// hasPeerRoom reports whether the table of peers has room for all ranks of a producer.
func hasPeerRoom(e *flow.Env, producers []Peer) bool {
	return e.Links.HasRoomForPeers(len(producers), func(i int) link.PeerAddr { return producers[i].addr() })
}

func noPeerReason(e *flow.Env) *effects.Why {
	return &effects.Why{
		Field: "tables.peers", Ours: flow.FormatCount(e.Cfg.PeersMax) + ", and all of them are in use",
		Remedy: "raise tables.peers",
	}
}

// validateRegister returns the producer ranks of a Register, or an error if the Register is invalid.
func (c *Consumer) validateRegister(e *flow.Env, x *Register) (producers geometry.Neighbours, code effects.Code, why *effects.Why) {
	if code, why = checkNames(e, x.Request, x.Transfer, x.Timeout); code != effects.OK {
		return producers, code, why
	}
	if c.cfg.Geometry.Stages != 1 {
		return producers, effects.Unsupported, &effects.Why{
			Field: "register.pp_size", Theirs: flow.FormatCount(c.cfg.Geometry.Stages), Ours: "1",
			Remedy: "register at an engine without pipeline stages",
		}
	}
	producers, err := geometry.ProducersOf(c.cfg.Geometry, x.Ranks, x.Stages)
	if err != nil {
		code, why = geometryReason(err)
		return producers, code, why
	}
	switch {
	case producers.Len() > uint64(c.cfg.ProducersMax):
		return producers, effects.TooLarge, &effects.Why{
			Field: "Producers", Theirs: flow.FormatCount(producers.Len()), Ours: "at most " + flow.FormatCount(c.cfg.ProducersMax),
			Remedy: "raise register.producers",
		}
	case producers.Len() != uint64(len(x.Producers)):
		return producers, effects.Invalid, &effects.Why{
			Field: "Producers", Theirs: flow.FormatCount(len(x.Producers)),
			Ours: flow.FormatCount(producers.Len()) + ", in the order of stages", Remedy: "name the ranks of geometry.ProducersOf",
		}
	case len(x.Engine) > e.Cfg.Wire.StringBytes:
		return producers, effects.TooLarge, &effects.Why{
			Field: "Engine", Theirs: flow.FormatCount(len(x.Engine)) + " bytes", Ours: "at most " +
				flow.FormatCount(e.Cfg.Wire.StringBytes), Remedy: "give the producer's register.engine_id",
		}
	}
	code, why = checkPeers(x.Producers)
	return producers, code, why
}

// checkPeers returns an error if a peer has no complete address.
func checkPeers(peers []Peer) (effects.Code, *effects.Why) {
	for i, at := range peers {
		if at.Host == "" || at.InitPort == 0 || at.Port == 0 {
			return effects.Invalid, &effects.Why{
				Field: flow.EntryName("Producers", i), Theirs: effects.SanitizeText([]byte(at.Host)) + ":" + flow.FormatCount(int(at.InitPort)) + "," +
					flow.FormatCount(int(at.Port)), Ours: "a host and two ports",
				Remedy: "give that rank's pd_peer_host, and its ports of pd_peer_init_port and pd_peer_alloc_port",
			}
		}
	}
	return effects.OK, nil
}

// checkNames returns an error if a command's names or timeout are invalid, or the node is draining.
func checkNames(e *flow.Env, request, transfer []byte, timeout effects.Duration) (effects.Code, *effects.Why) {
	if e.Draining {
		return effects.Draining, endReason(effects.Draining)
	}
	if err := protocol.CheckNixlRequest(request, &e.Cfg.Wire); err != nil {
		return effects.Invalid, badNameReason("Request", request, err)
	}
	if len(transfer) > 0 {
		if err := protocol.CheckNixlRequest(transfer, &e.Cfg.Wire); err != nil {
			return effects.Invalid, badNameReason("Transfer", transfer, err)
		}
	}
	return flow.CheckDuration("Timeout", timeout)
}

// claimPages claims all pages of the blocks for a command, or none. It fails if the list is empty or too long, or if
// another command has claimed one of the pages.
func claimPages(e *flow.Env, plan *geometry.Plan, blocks []geometry.Blocks, into []effects.Page) (
	pages []effects.Page, code effects.Code, why *effects.Why,
) {
	list, err := plan.ConsumerPages(blocks)
	if err != nil {
		if x, ok := err.(*geometry.Error); ok { // the error always has this type
			x.Side = "" // There is no second side: the error is about the command.
		}
		code, why = geometryReason(err)
		return into, code, why
	}
	switch n := list.Len(); {
	case n == 0:
		return into, effects.Invalid, &effects.Why{
			Field: "Blocks", Theirs: "none", Ours: "one or more", Remedy: "say NotNeeded if all is cached",
		}
	case n > uint64(e.Cfg.BatchMax):
		return into, effects.TooLarge, &effects.Why{
			Field: "Blocks", Theirs: flow.FormatCount(n) + " pages", Ours: "at most " +
				flow.FormatCount(e.Cfg.BatchMax) + " (limits.keys_per_batch)", Remedy: splitRemedy(),
		}
	}
	for index := range list.All() {
		if e.Pool.IsClaimed(index) {
			releasePages(e.Pool, into)
			return into, effects.Invalid, &effects.Why{
				Field: "Blocks", Theirs: "page " + flow.FormatCount(index), Ours: "a page that no other command uses, named once",
				Remedy: "wait until its Reception or Lending is Returned",
			}
		}
		into = append(into, e.Pool.ClaimPage(index, uint32(e.Cfg.PageBytes)))
	}
	e.Work.SpendRows(len(into))
	return into, effects.OK, nil
}

// releasePages returns pages to the engine.
func releasePages(pool *memory.Pool, pages []effects.Page) {
	for _, page := range pages {
		// The page's generation may have changed since the claim.
		pool.DropRef(pool.CurrentPage(page.Index, page.Length))
	}
}

// onDeadline handles the deadline of a reception, or the end of its grants.
func (c *Consumer) onDeadline(e *flow.Env, h table.Handle) {
	r := c.receptions.Get(h)
	r.timer = 0
	if !r.delivered {
		c.failReception(e, h, effects.Expired, effects.Why{
			Field: "Timeout", Ours: r.timeout.String(), Theirs: flow.FormatCount(r.unfinishedParts) + " of " + flow.FormatCount(len(r.parts)) +
				" producer ranks have not written",
			Remedy: "look whether these ranks got the request, or raise register.push_registration_timeout",
		})
		return
	}
	// No producer replied: only the plane's proof ends a grant from now on (M4).
	for _, ph := range r.parts {
		if p := c.parts.Get(ph); p != nil && p.reception == h && p.grant != 0 && !p.revoking {
			e.Out.Mark(Marks.GrantOver)
			c.revokeGrant(e, p)
		}
	}
}

// failReception ends a reception without an outcome: the outcome is delivered now, and the blocks return when nothing
// can be written into them.
func (c *Consumer) failReception(e *flow.Env, h table.Handle, code effects.Code, why effects.Why) {
	r := c.receptions.Get(h)
	r.code, r.why = code, why
	c.deliverOutcome(e, r)
	for _, ph := range r.parts {
		if p := c.parts.Get(ph); p != nil && p.reception == h {
			c.withdrawPart(e, ph, p)
		}
	}
	c.continueReception(e, h)
}

// deliverOutcome delivers the outcome of a reception.
func (c *Consumer) deliverOutcome(e *flow.Env, r *reception) {
	if r.delivered {
		panic("BUG: a reception had two outcomes")
	}
	r.delivered = true
	d := effects.Deliver{Ticket: r.ticket, Code: r.code, Held: r.openGrants > 0}
	if r.code == effects.OK {
		if r.openGrants > 0 || r.unfinishedParts > 0 {
			panic("BUG: a reception ends well of which something is open")
		}
		d.Hits = uint32(len(r.pages))
	} else {
		why := r.why
		if why.Stage == effects.StageNone {
			why.Stage = effects.StageTransfer
		}
		d.Why = &why
	}
	e.Tickets.Remove(r.ticket)
	e.Out.Observe(effects.Observe{
		Fact: effects.FactReceived, Code: r.code, Count: uint32(len(r.pages)), ID: uint64(r.ticket), Why: d.Why, Report: r.report(e),
	})
	if !d.Held {
		c.returnBlocks(e, r)
	}
	e.Out.Deliver(d)
	e.Timers.Stop(&r.timer)
}

// report returns the times of a reception that ends now.
func (r *reception) report(e *flow.Env) *effects.Report {
	report := effects.Report{Began: r.startedAt, Trace: r.trace}
	for i := range r.pages {
		report.Bytes += uint64(r.pages[i].Length)
	}
	sentAt := e.Now
	if r.unsentParts == 0 {
		sentAt = r.sentAt
	}
	report.Phases[effects.PhaseQueue] = sentAt.Sub(r.startedAt)
	report.Phases[effects.PhaseWire] = e.Now.Sub(sentAt)
	return e.Out.CopyReport(report)
}

// returnBlocks returns the blocks to the engine. Invariant: nothing can be written into them any more (M4).
func (c *Consumer) returnBlocks(e *flow.Env, r *reception) {
	if r.openGrants > 0 || r.blocksReturned {
		panic("BUG: blocks go back that may be written, or twice")
	}
	r.blocksReturned = true
	releasePages(e.Pool, r.pages)
	r.pages = table.TrimSlice(r.pages)
}

// continueReception examines a reception after a part or a grant has ended: the reception may end well, return its
// blocks, or be removed.
func (c *Consumer) continueReception(e *flow.Env, h table.Handle) {
	r := c.receptions.Get(h)
	if !r.delivered && r.unfinishedParts == 0 && r.openGrants == 0 {
		r.code = effects.OK
		c.deliverOutcome(e, r)
		for _, ph := range r.parts {
			if p := c.parts.Get(ph); p != nil && p.reception == h && p.phase == partRegistering {
				p.phase = partIdle // The reply cannot say anything new.
			}
		}
	}
	if r.delivered && r.openGrants == 0 && !r.blocksReturned {
		c.returnBlocks(e, r)
		e.Out.Return(r.ticket)
		e.Timers.Stop(&r.timer)
	}
	for i, ph := range r.parts {
		p := c.parts.Get(ph)
		if p == nil || p.reception != h {
			continue
		}
		// The place on the lane is needed for further parts.
		if p.registrationInFlight && p.registrationTimer == 0 && (r.delivered || p.fullyWritten) {
			e.Timers.Set(&p.registrationTimer, e.Now.Add(e.Cfg.ReplyTimeout), consumerRef(timerRegister, ph))
		}
		// The instant may be over already, if the driver is late.
		if r.delivered && p.grant != 0 && !p.revoking && r.timer == 0 {
			e.Timers.Set(&r.timer, r.grantsEnd, consumerRef(timerReception, h))
		}
		if r.delivered && p.isRemovable() {
			e.Links.ReleasePeer(p.peer)
			e.Timers.Stop(&p.withdrawalTimer)
			c.parts.Remove(ph)
			r.parts[i] = 0
			r.partCount--
		}
	}
	if r.delivered && r.partCount == 0 {
		if !r.blocksReturned {
			panic("BUG: a reception is over whose blocks are not back")
		}
		e.Timers.Stop(&r.timer)
		r.blocks.releaseMemory()
		c.receptions.Remove(h)
	}
}

// isRemovable reports whether nothing of a part is queued, in flight or granted, so that the part can be removed once
// the reception has its outcome.
func (p *part) isRemovable() bool {
	return p.grant == 0 && !p.registrationInFlight && !p.withdrawalInFlight && !p.withdrawalQueued && p.phase != partLinking
}
