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

// own is the fairness class of pages that are granted to producers: that of the node's own engine, because the engine
// requested the writes.
const own = 0

// take handles a Register. A Register that cannot be accepted is refused at once and changes nothing.
func (c *Consumer) take(e *flow.Env, t effects.Ticket, x *Register) {
	code, why := c.begin(e, t, x)
	if code != effects.OK {
		engine.TurnDown(&e.Env, t, code, why)
	}
}

func (c *Consumer) begin(e *flow.Env, t effects.Ticket, x *Register) (effects.Code, *effects.Why) {
	near, code, why := c.check(e, x)
	if code != effects.OK {
		return code, why
	}
	if c.receptions.Full() || c.parts.Len()+len(x.Producers) > c.parts.Max() {
		e.Out.Mark(Marks.ReceptionsFull)
		return effects.TooMany, &effects.Why{
			Field: "register.receptions", Ours: flow.Number(c.receptions.Max()) + ", of " + flow.Number(c.parts.Max()) +
				" producer ranks in all", Theirs: flow.Number(c.receptions.Len()) + " are open, of " + flow.Number(c.parts.Len()),
			Remedy: "retry when one has ended, or raise register.receptions",
		}
	}
	if c.pages, code, why = claim(e, &c.whole, x.Blocks, c.pages[:0]); code != effects.OK {
		return code, why
	}
	peers := c.peers[:0]
	for _, at := range x.Producers {
		peer := e.Links.Want(&e.Env, link.Where{Host: at.Host, InitPort: at.InitPort, AllocPort: at.Port})
		if peer == 0 {
			for _, h := range peers {
				e.Links.Unwant(h)
			}
			unclaim(e.Pool, c.pages)
			return effects.TooMany, noPeer(e)
		}
		peers = append(peers, peer)
	}
	c.peers = peers
	patience := cmp.Or(x.Patience, c.cfg.RegisterTimeout)
	h, r := c.receptions.Add()
	*r = reception{
		ticket: t, request: append(r.request[:0], x.Request...), transfer: append(r.transfer[:0], x.Transfer...),
		engine: append(r.engine[:0], x.Engine...), blocks: r.blocks, pages: append(r.pages[:0], c.pages...),
		parts: r.parts[:0], ranks: x.Ranks, stages: x.Stages, rows: uint32(len(peers)), left: uint32(len(peers)),
		patience: patience, deadline: e.Now.Add(patience), plan: r.plan[:0],
	}
	r.blocks.keep(x.Blocks)
	r.ends = r.deadline.Add(e.Cfg.LeaseGuard)
	e.Tickets.Add(t, consumerRef(timerTakes, h))
	e.Timers.Set(&r.timer, r.deadline, consumerRef(timerTakes, h))
	place := uint32(0)
	for stage, rank := range near.All() {
		ph, p := c.parts.Add()
		c.operation++
		*p = part{
			of: h, place: place, stage: stage, rank: rank, peer: peers[place], operation: c.operation, phase: partAnswered,
		}
		r.parts, r.plan = append(r.parts, ph), append(r.plan, partPlan{})
		place++
	}
	c.errands.registered(e, c, x.Request, x.Transfer)
	// Starting a part may end the whole reception, for example if the peer is known to be unusable.
	for _, ph := range r.parts {
		if p := c.parts.Get(ph); p != nil && p.of == h && !r.delivered {
			c.becomeLinking(e, ph, p)
		}
	}
	return effects.OK, nil
}

func noPeer(e *flow.Env) *effects.Why {
	return &effects.Why{
		Field: "tables.peers", Ours: flow.Number(e.Cfg.PeersMax) + ", and all of them are in use",
		Remedy: "raise tables.peers",
	}
}

// check returns the producer ranks of a Register, or an error if the Register is invalid.
func (c *Consumer) check(e *flow.Env, x *Register) (near geometry.Neighbours, code effects.Code, why *effects.Why) {
	if code, why = checkNames(e, x.Request, x.Transfer, x.Patience); code != effects.OK {
		return near, code, why
	}
	if c.cfg.Geometry.Stages != 1 {
		return near, effects.Unsupported, &effects.Why{
			Field: "register.pp_size", Theirs: flow.Number(c.cfg.Geometry.Stages), Ours: "1",
			Remedy: "register at an engine without pipeline stages",
		}
	}
	near, err := geometry.Producers(c.cfg.Geometry, x.Ranks, x.Stages)
	if err != nil {
		code, why = unpaired(err)
		return near, code, why
	}
	switch {
	case near.Len() > uint64(c.cfg.ProducersMax):
		return near, effects.TooLarge, &effects.Why{
			Field: "Producers", Theirs: flow.Number(near.Len()), Ours: "at most " + flow.Number(c.cfg.ProducersMax),
			Remedy: "raise register.producers",
		}
	case near.Len() != uint64(len(x.Producers)):
		return near, effects.Invalid, &effects.Why{
			Field: "Producers", Theirs: flow.Number(len(x.Producers)),
			Ours: flow.Number(near.Len()) + ", in the order of stages", Remedy: "name those of geometry.Producers",
		}
	case len(x.Engine) > e.Cfg.Wire.StringBytes:
		return near, effects.TooLarge, &effects.Why{
			Field: "Engine", Theirs: flow.Number(len(x.Engine)) + " bytes", Ours: "at most " +
				flow.Number(e.Cfg.Wire.StringBytes), Remedy: "give the producer's register.engine_id",
		}
	}
	code, why = checkPeers(x.Producers)
	return near, code, why
}

// checkPeers returns an error if a peer has no complete address.
func checkPeers(peers []Peer) (effects.Code, *effects.Why) {
	for i, at := range peers {
		if at.Host == "" || at.InitPort == 0 || at.Port == 0 {
			return effects.Invalid, &effects.Why{
				Field: flow.At("Producers", i), Theirs: effects.Words([]byte(at.Host)) + ":" + flow.Number(int(at.InitPort)) + "," +
					flow.Number(int(at.Port)), Ours: "a host and two ports",
				Remedy: "give that rank's pd_peer_host, and its ports of pd_peer_init_port and pd_peer_alloc_port",
			}
		}
	}
	return effects.OK, nil
}

// checkNames returns an error if a command's names or patience are invalid, or the node is draining.
func checkNames(e *flow.Env, request, transfer []byte, patience effects.Duration) (effects.Code, *effects.Why) {
	if e.Draining {
		return effects.Draining, ended(effects.Draining)
	}
	if err := protocol.CheckNixlRequest(request, &e.Cfg.Wire); err != nil {
		return effects.Invalid, badName("Request", request, err)
	}
	if len(transfer) > 0 {
		if err := protocol.CheckNixlRequest(transfer, &e.Cfg.Wire); err != nil {
			return effects.Invalid, badName("Transfer", transfer, err)
		}
	}
	return flow.Waitable("Patience", patience)
}

// claim claims all pages of the blocks for a command, or none. It fails if the list is empty or too long, or if
// another command has claimed one of the pages.
func claim(e *flow.Env, all *geometry.Plan, blocks []geometry.Blocks, into []effects.Page) (
	pages []effects.Page, code effects.Code, why *effects.Why,
) {
	list, err := all.ConsumerPages(blocks)
	if err != nil {
		if x, ok := err.(*geometry.Error); ok { // the error always has this type
			x.Side = "" // There is no second side: the error is about the command.
		}
		code, why = unpaired(err)
		return into, code, why
	}
	switch n := list.Len(); {
	case n == 0:
		return into, effects.Invalid, &effects.Why{
			Field: "Blocks", Theirs: "none", Ours: "one or more", Remedy: "say NotNeeded if all is cached",
		}
	case n > uint64(e.Cfg.BatchMax):
		return into, effects.TooLarge, &effects.Why{
			Field: "Blocks", Theirs: flow.Number(n) + " pages", Ours: "at most " +
				flow.Number(e.Cfg.BatchMax) + " (limits.keys_per_batch)", Remedy: cutIt(),
		}
	}
	for index := range list.All() {
		if e.Pool.Claimed(index) {
			unclaim(e.Pool, into)
			return into, effects.Invalid, &effects.Why{
				Field: "Blocks", Theirs: "page " + flow.Number(index), Ours: "one that no other command has, nor this one twice",
				Remedy: "wait until its Reception or Lending is Returned",
			}
		}
		into = append(into, e.Pool.Claim(index, uint32(e.Cfg.PageBytes)))
	}
	e.Work.Spend(len(into))
	return into, effects.OK, nil
}

// unclaim returns pages to the engine.
func unclaim(pool *memory.Pool, pages []effects.Page) {
	for _, page := range pages {
		// The page's generation may have changed since the claim.
		pool.Unref(pool.Life(page.Index, page.Length))
	}
}

// late handles the deadline of a reception, or the end of its grants.
func (c *Consumer) late(e *flow.Env, h table.Handle) {
	r := c.receptions.Get(h)
	r.timer = 0
	if !r.delivered {
		c.stop(e, h, effects.Expired, effects.Why{
			Field: "Patience", Ours: r.patience.String(), Theirs: flow.Number(r.left) + " of " + flow.Number(len(r.parts)) +
				" producer ranks have not written",
			Remedy: "look whether these ranks got the request, or raise register.push_registration_timeout",
		})
		return
	}
	// No producer replied: only the plane's proof ends a grant from now on (M4).
	for _, ph := range r.parts {
		if p := c.parts.Get(ph); p != nil && p.of == h && p.grant != 0 && !p.revoking {
			e.Out.Mark(Marks.GrantOver)
			c.revoke(e, p)
		}
	}
}

// stop ends a reception without an outcome: the outcome is delivered now, and the blocks return when nothing can be
// written into them.
func (c *Consumer) stop(e *flow.Env, h table.Handle, code effects.Code, why effects.Why) {
	r := c.receptions.Get(h)
	r.code, r.why = code, why
	c.deliver(e, r)
	for _, ph := range r.parts {
		if p := c.parts.Get(ph); p != nil && p.of == h {
			c.withdraw(e, ph, p)
		}
	}
	c.settle(e, h)
}

// deliver delivers the outcome of a reception.
func (c *Consumer) deliver(e *flow.Env, r *reception) {
	if r.delivered {
		panic("BUG: a reception had two outcomes")
	}
	r.delivered = true
	d := effects.Deliver{Ticket: r.ticket, Code: r.code, Held: r.open > 0}
	if r.code == effects.OK {
		if r.open > 0 || r.left > 0 {
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
		Fact: effects.FactReceived, Code: r.code, Count: uint32(len(r.pages)), ID: uint64(r.ticket), Why: d.Why,
	})
	if !d.Held {
		c.giveBack(e, r)
	}
	e.Out.Deliver(d)
	e.Timers.Stop(&r.timer)
}

// giveBack returns the blocks to the engine. Invariant: nothing can be written into them any more (M4).
func (c *Consumer) giveBack(e *flow.Env, r *reception) {
	if r.open > 0 || r.returned {
		panic("BUG: blocks go back that may be written, or twice")
	}
	r.returned = true
	unclaim(e.Pool, r.pages)
	r.pages = table.Shed(r.pages)
}

// settle examines a reception after a part or a grant has ended: the reception may end well, return its blocks, or be
// removed.
func (c *Consumer) settle(e *flow.Env, h table.Handle) {
	r := c.receptions.Get(h)
	if !r.delivered && r.left == 0 && r.open == 0 {
		r.code = effects.OK
		c.deliver(e, r)
		for _, ph := range r.parts {
			if p := c.parts.Get(ph); p != nil && p.of == h && p.phase == partAsking {
				p.phase = partAnswered // The reply cannot say anything new.
			}
		}
	}
	if r.delivered && r.open == 0 && !r.returned {
		c.giveBack(e, r)
		e.Out.Return(r.ticket)
		e.Timers.Stop(&r.timer)
	}
	for i, ph := range r.parts {
		p := c.parts.Get(ph)
		if p == nil || p.of != h {
			continue
		}
		// The place on the lane is needed for further parts.
		if p.asks && p.overdue == 0 && (r.delivered || p.whole) {
			e.Timers.Set(&p.overdue, e.Now.Add(e.Cfg.ReplyTimeout), consumerRef(timerAsk, ph))
		}
		// The instant may be over already, if the driver is late.
		if r.delivered && p.grant != 0 && !p.revoking && r.timer == 0 {
			e.Timers.Set(&r.timer, r.ends, consumerRef(timerTakes, h))
		}
		if r.delivered && p.over() {
			e.Links.Unwant(p.peer)
			e.Timers.Stop(&p.answer)
			c.parts.Remove(ph)
			r.parts[i] = 0
			r.rows--
		}
	}
	if r.delivered && r.rows == 0 {
		if !r.returned {
			panic("BUG: a reception is over whose blocks are not back")
		}
		e.Timers.Stop(&r.timer)
		r.blocks.shed()
		c.receptions.Remove(h)
	}
}

// over reports whether nothing of a part is queued, in flight or granted, so that the part can be removed once the
// reception has its outcome.
func (p *part) over() bool {
	return p.grant == 0 && !p.asks && !p.tells && !p.queued && p.phase != partLinking
}
