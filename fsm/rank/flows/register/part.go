package register

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory/geometry"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Registrations use one lane of a peer, as many at a time as both ends permit. Withdrawals and errand messages use
// another lane, so that they do not wait behind registrations that wait for a prefill.
const (
	laneAsks  = link.LaneAlloc
	laneWords = link.LaneCommit
)

// becomeLinking appends a part to the queue of its peer. A part that was sent before goes to the front.
func (c *Consumer) becomeLinking(e *flow.Env, h table.Handle, p *part) {
	p.phase, p.conn, p.reached = partLinking, 0, e.Links.Outbound(p.peer).Attempt()
	if q := &c.lines[p.peer.Slot()].asks; p.attempt > 0 {
		e.Out.Mark(Marks.AskAgain)
		c.parts.PushFront(q, h)
	} else {
		c.parts.PushBack(q, h)
	}
	c.pump(e, p.peer)
}

// pump sends what is queued for a peer, as far as the lanes permit.
func (c *Consumer) pump(e *flow.Env, peer table.Handle) {
	l := &c.lines[peer.Slot()]
	for h := l.words.Front(); h != 0; h = l.words.Front() {
		p := c.parts.Get(h)
		if g, _ := e.Links.Outbound(peer).Gate(); g != link.GateOpen || c.other(e, p) {
			// The incarnation that was asked is gone or unreachable. The end of the grant has the same effect as a
			// withdrawal, with proof.
			c.parts.Unlink(&l.words, h)
			p.queued, p.phase = false, partAnswered
			c.settle(e, p.of)
			continue
		}
		conn := e.Links.Take(&e.Env, peer, laneWords)
		if conn == 0 {
			break
		}
		c.parts.Unlink(&l.words, h)
		c.tell(e, h, p, conn)
	}
	for h := l.asks.Front(); h != 0; h = l.asks.Front() {
		p := c.parts.Get(h)
		g, cause := e.Links.Outbound(peer).Gate()
		if g == link.GateOpen {
			conn := e.Links.Take(&e.Env, peer, laneAsks)
			if conn == 0 {
				break
			}
			c.parts.Unlink(&l.asks, h)
			// No queue contains the part now; becomeAsking sets the phase.
			p.phase = partAnswered
			c.becomeAsking(e, h, p, conn)
			continue
		}
		if g == link.GateShut || g == link.GateAbsent && p.reached == e.Links.Outbound(peer).Attempt() {
			break
		}
		why := effects.Why{}
		if w := e.Links.Outbound(peer).Why(); w != nil {
			why = *w
		}
		c.stop(e, p.of, cause, why)
	}
	c.pumpErrands(e, peer)
}

// other reports whether the peer's incarnation is not the one that was asked (M2).
func (c *Consumer) other(e *flow.Env, p *part) bool {
	_, who := e.Links.Of(p.peer).Link()
	return who != p.who
}

// becomeAsking sends the registration of a part. The pages are granted in this step, before the message.
func (c *Consumer) becomeAsking(e *flow.Env, h table.Handle, p *part, conn effects.Conn) {
	r, of := c.receptions.Get(p.of), e.Links.Of(p.peer)
	_, who := of.Link()
	if p.attempt > 0 && who != p.who {
		e.Out.Mark(Marks.OtherLife)
		e.Links.Untake(&e.Env, p.peer, laneAsks, conn)
		c.stop(e, p.of, effects.PeerLost, effects.Why{Field: "life", Theirs: "another one than that which was asked",
			Remedy: "dispatch the request anew: who restarted has none of it"})
		return
	}
	if p.attempt == 0 {
		p.who, p.us = who, of.Us()
		if code, why := c.lay(e, h, p, r); code != effects.OK {
			e.Links.Untake(&e.Env, p.peer, laneAsks, conn)
			c.misfit(e, p.of, code, why)
			return
		}
	}
	p.phase, p.conn, p.asks = partAsking, conn, true
	p.attempt++
	m := &c.ask
	*m = protocol.PushRegistration{
		RequestID: r.request, EngineID: []byte(c.cfg.EngineID), Host: []byte(c.cfg.SideHost), Port: uint32(c.cfg.SidePort),
		TPSize: c.cfg.Geometry.Ranks, Blocks: c.listed(r),
		Remote: protocol.PushProducer{
			EngineID: r.engine, Host: []byte(e.Links.Outbound(p.peer).Where().Host),
			Port: uint32(e.Links.Outbound(p.peer).Where().AllocPort), TPSize: r.ranks, PPSize: r.stages,
		},
		HasExt: true,
		Ext: protocol.PushRegistrationExt{
			Version: link.VersionMax, Incarnation: protocol.UUID(p.us), To: protocol.UUID(p.who), Operation: p.operation,
			Attempt: p.attempt, Transfer: r.transfer, First: m.Ext.First[:0], Ends: m.Ext.Ends[:0], Grant: uint64(p.grant),
			Generations: m.Ext.Generations[:0], GrantedNS: int64(p.granted), LeaseNS: uint64(max(0, r.ends.Sub(p.granted))),
			PatienceNS: uint64(max(0, r.deadline.Sub(e.Now))), Caches: p.caches, Stamps: of.Stamps(e.Now),
		},
	}
	// A group that is not listed has no blocks, and runs from zero to zero.
	for range m.Blocks {
		m.Ext.First, m.Ext.Ends = append(m.Ext.First, 0), append(m.Ext.Ends, 0)
	}
	for _, x := range r.blocks.of {
		m.Ext.First[x.Group], m.Ext.Ends[x.Group] = x.First, x.End
	}
	for _, page := range e.Pools.Pages(p.grant) {
		m.Ext.Generations = append(m.Ext.Generations, uint64(page.Generation))
	}
	e.Out.Send(effects.Send{
		Corr: e.Corrs.Open(consumerRef(kindAsk, h)), Conn: conn, Body: e.Out.Cut(m.Append(e.Out.Arena())),
	})
}

// listed returns the blocks of a reception in the format of the message: a list for each group, up to the last group
// with blocks.
func (c *Consumer) listed(r *reception) [][]uint64 {
	c.groups = c.groups[:0]
	for _, x := range r.blocks.of {
		for len(c.groups) <= int(x.Group) {
			c.groups = append(c.groups, nil)
		}
		list := c.groups[x.Group]
		for _, n := range x.Logical {
			list = append(list, uint64(n))
		}
		c.groups[x.Group] = list
	}
	return c.groups
}

// lay grants the pages of a part to its peer. It fails if the peer's cache does not fit, or no grant is free.
func (c *Consumer) lay(e *flow.Env, h table.Handle, p *part, r *reception) (effects.Code, *effects.Why) {
	of := e.Links.Of(p.peer)
	theirs, ok := read(of.Geometry(), c.theirs)
	c.theirs, p.caches = theirs, Sum(c.own, of.Geometry())
	switch {
	case !ok:
		return effects.Unsupported, &effects.Why{
			Field: "kvf_geometry", Theirs: "none, or none that can be", Ours: "that of a producer",
			Remedy: "register blocks at ranks that finish some",
		}
	case theirs.Ranks != r.ranks || theirs.Stages != r.stages || theirs.Rank != p.rank || theirs.Stage != p.stage:
		return effects.Mismatch, &effects.Why{
			Field: flow.At("Producers", int(p.place)), Ours: "rank " + flow.Number(p.rank) + " of " + flow.Number(r.ranks) +
				", stage " + flow.Number(p.stage) + " of " + flow.Number(r.stages),
			Theirs: "rank " + flow.Number(theirs.Rank) + " of " + flow.Number(theirs.Ranks) + ", stage " +
				flow.Number(theirs.Stage) + " of " + flow.Number(theirs.Stages),
			Remedy: "name the ranks in the order of geometry.Producers, or mend register.tp_size and register.pp_size there",
		}
	}
	plan, err := geometry.Match(&theirs, c.cfg.Geometry)
	if err != nil {
		return unpaired(err)
	}
	r.plan[p.place] = partPlan{known: true, plan: plan}
	if code, why := c.covered(r); code != effects.OK {
		return code, why
	}
	pages, err := plan.ConsumerPages(r.blocks.of)
	if err != nil {
		return unpaired(err)
	}
	p.granted = e.Now
	n := pages.Len()
	if n == 0 {
		return effects.OK, nil
	}
	if !e.Pools.FitsShare(e.Pool, own, uint32(n)) || e.Pools.GrantsFull() {
		e.Out.Mark(Marks.GrantsFull)
		return effects.TooMany, &effects.Why{
			Field: "grants", Ours: flow.Number(e.Pools.Grants()) + " open, and no more there may be",
			Remedy: "retry when a Register has ended",
		}
	}
	c.pages = c.pages[:0]
	for index := range pages.All() {
		if length := uint32(e.Cfg.PageBytes); p.tries > 0 {
			c.pages = append(c.pages, e.Pool.Relive(index, length))
		} else {
			c.pages = append(c.pages, e.Pool.Life(index, length))
		}
	}
	e.Work.Spend(len(c.pages))
	id, granted := e.Pools.GrantClaimed(e.Pool, own, c.pages, consumerRef(kindGrant, h))
	p.grant, p.count = id, uint32(len(granted))
	r.open++
	e.Out.Grant(effects.Grant{ID: id, Peer: p.who, Pages: granted})
	e.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: p.count, ID: uint64(id), Peer: p.who})
	return effects.OK, nil
}

// covered checks, as soon as all plans are known, that the ranks together write all of the blocks.
func (c *Consumer) covered(r *reception) (effects.Code, *effects.Why) {
	c.plans = c.plans[:0]
	for i := range r.plan {
		if !r.plan[i].known {
			return effects.OK, nil
		}
		c.plans = append(c.plans, r.plan[i].plan)
	}
	if err := geometry.Covers(c.cfg.Geometry, c.plans); err != nil {
		return unpaired(err)
	}
	return effects.OK, nil
}

// answered handles the reply to a registration: nothing of the registration writes any more.
func (c *Consumer) answered(e *flow.Env, h table.Handle, body []byte) {
	p := c.parts.Get(h)
	p.asks = false
	e.Timers.Stop(&p.overdue)
	e.Links.Untake(&e.Env, p.peer, laneAsks, p.conn)
	p.conn = 0
	c.said(e, h, p, body)
}

// withdrawn handles the reply to a withdrawal, which has the same meaning as the reply to the registration.
func (c *Consumer) withdrawn(e *flow.Env, h table.Handle, body []byte) {
	p := c.parts.Get(h)
	p.tells = false
	e.Timers.Stop(&p.answer)
	e.Links.Untake(&e.Env, p.peer, laneWords, p.wordConn)
	p.wordConn = 0
	c.said(e, h, p, body)
}

// said handles the end message of a producer for a part.
func (c *Consumer) said(e *flow.Env, h table.Handle, p *part, body []byte) {
	m := &c.end
	r := c.receptions.Get(p.of)
	if err := m.Decode(body, &e.Cfg.Wire); err != nil || effects.Incarnation(m.Incarnation) != p.who ||
		m.Operation != p.operation {
		e.Out.Mark(Marks.AnswerSenseless)
		why := effects.Why{Field: "PUSH_END", Ours: "of who was asked, and of that registration", Theirs: "another's",
			Remedy: "look which program listens there"}
		if err != nil {
			why = link.Undecodable(err)
		}
		if r.delivered {
			p.phase = partAnswered
			c.settle(e, p.of)
			return
		}
		c.stop(e, p.of, effects.Malformed, why)
		return
	}
	if !c.other(e, p) {
		e.Links.Of(p.peer).Seen(m.Stamps)
	}
	code := effects.CodeFromWire(m.Code)
	switch {
	case code != effects.Stale || !e.Cfg.Leased:
		c.quiet(e, p, code == effects.OK && !r.delivered)
	case p.grant != 0 && !p.revoking:
		// A producer that does not know this node cannot know what its earlier incarnation has in flight (M4).
		c.revoke(e, p)
	}
	if p.queued { // The queued withdrawal is superfluous now.
		c.parts.Unlink(&c.lines[p.peer.Slot()].words, h)
		p.queued = false
	}
	p.phase = partAnswered
	switch {
	case r.delivered || p.whole: // Pages that landed are complete, whatever the producer says.
		c.settle(e, p.of)
	case (code == effects.Expired || code == effects.Stale) && p.tries < e.Cfg.AttemptsMax && e.Now < r.deadline:
		// The producer considered the grant expired by its anchor for this node's clock, which the reply has
		// improved; or it does not know this node any more. The old grant has to end first.
		e.Out.Mark(Marks.ExpiredEarly)
		if code == effects.Stale {
			c.introduce(e, p.peer, p.who)
		}
		p.tries++
		p.again = true
		c.anew(e, h, p)
	case code != effects.OK:
		e.Out.Mark(Marks.Refused)
		c.stop(e, p.of, code, effects.Why{
			Addr: where(e, p), Peer: p.who, Field: flow.At("Producers", int(p.place)), Said: effects.Words(m.Reason),
		})
	case p.count > 0:
		e.Out.Mark(Marks.SaidWhole)
		c.stop(e, p.of, effects.Faulted, effects.Why{
			Addr: where(e, p), Peer: p.who, Field: flow.At("Producers", int(p.place)), Theirs: "says that all was written",
			Ours: "not all of it landed in time", Remedy: "dispatch the request anew, and look at both logs",
		})
	default: // The producer had nothing to write.
		r.left--
		c.settle(e, p.of)
	}
}

// introduce repeats the handshake with a peer that does not know this node, unless the link already leads to another
// incarnation of the peer.
func (c *Consumer) introduce(e *flow.Env, peer table.Handle, to effects.Incarnation) {
	g, _ := e.Links.Outbound(peer).Gate()
	if _, who := e.Links.Of(peer).Link(); g == link.GateOpen && who == to {
		e.Out.Mark(Marks.IntroduceAgain)
		e.Links.Fail(&e.Env, peer, effects.Stale, *flow.UnknownLife())
	}
}

// misfit ends a reception because a part cannot be granted. If the cause is the description of a peer's cache, a
// hello of any of the peers may have been damaged, so the handshakes are repeated.
func (c *Consumer) misfit(e *flow.Env, h table.Handle, code effects.Code, why *effects.Why) {
	peers := c.peers[:0]
	for _, ph := range c.receptions.Get(h).parts {
		if p := c.parts.Get(ph); p != nil && p.of == h && code != effects.TooMany {
			peers = append(peers, p.peer)
		}
	}
	c.peers = peers
	c.stop(e, h, code, *why)
	for _, peer := range peers {
		if e.Links.Outbound(peer).Doubtful(e.Now) {
			e.Out.Mark(Marks.IntroduceAgain)
			e.Links.Fail(&e.Env, peer, effects.Stale, *otherCache())
		}
	}
}

// anew registers a part again as another operation under another grant, if a new registration is due and the old
// grant has ended.
func (c *Consumer) anew(e *flow.Env, h table.Handle, p *part) {
	if !p.again || p.grant != 0 || p.asks || c.receptions.Get(p.of).delivered {
		return
	}
	c.operation++
	p.operation, p.attempt, p.again = c.operation, 0, false
	c.becomeLinking(e, h, p)
}

// where returns the address of a part's producer for error reports.
func where(e *flow.Env, p *part) effects.Addr {
	at := e.Links.Outbound(p.peer).Where()
	return effects.Addr{Host: at.Host, Port: at.AllocPort}
}

// quiet handles the statement of a producer that it does not store into the pages of a part any more. On leased
// planes the statement is also the commit, if it arrives in time. On fenced planes the plane itself ends what the
// producer left open.
func (c *Consumer) quiet(e *flow.Env, p *part, commits bool) {
	if p.grant == 0 {
		return
	}
	r := c.receptions.Get(p.of)
	switch {
	case !e.Cfg.Leased && !p.revoking:
		c.revoke(e, p)
	case !e.Cfg.Leased:
	case p.revoking:
		e.Pools.Clear(p.grant)
	default:
		if commits && e.Now <= r.ends {
			c.pages = append(c.pages[:0], e.Pools.Pages(p.grant)...)
			for _, page := range c.pages {
				e.Pools.Land(p.grant, page)
			}
			p.whole = true
			r.left--
		}
		e.Pools.End(p.grant)
		p.grant = 0
		r.open--
	}
}

// landed handles landed pages, as reported by a fenced plane.
func (c *Consumer) landed(e *flow.Env, h table.Handle, ev *effects.Landed) {
	p := c.parts.Get(h)
	if p == nil || p.grant != ev.Grant || p.who != ev.Peer {
		landing.Unknown(&e.Env, ev)
		return
	}
	r, code := c.receptions.Get(p.of), effects.OK
	if !ev.Complete {
		e.Out.Mark(Marks.LandedPartly)
		code = effects.Faulted
	}
	for _, page := range ev.Pages {
		if _, ok := e.Pools.Land(p.grant, page); !ok {
			code = effects.Withdrawn
		}
	}
	if r.delivered {
		code = effects.Withdrawn // The outcome was delivered, so nobody reads the page.
	}
	e.Out.Confirm(ev.Landing, code)
	switch {
	case e.Pools.OpenPages(p.grant) == 0 && !p.revoking:
		e.Pools.End(p.grant)
		p.grant = 0
		r.open--
		if code == effects.OK {
			p.whole = true
			r.left--
		}
	case !p.revoking:
		c.revoke(e, p)
	}
	// The registration was received, and must not be sent again.
	if p.phase == partLinking && !r.delivered {
		e.Out.Mark(Marks.LandedUnasked)
		c.parts.Unlink(&c.lines[p.peer.Slot()].asks, h)
		if p.phase = partAnswered; !p.whole {
			c.stop(e, p.of, effects.Faulted, effects.Why{
				Addr: where(e, p), Peer: p.who, Field: flow.At("Producers", int(p.place)), Theirs: "wrote not all of it",
				Remedy: "dispatch the request anew, and look at both logs",
			})
			return
		}
	}
	c.settle(e, p.of)
}

// revoke takes a grant back. Invariant: its pages are in quarantine, and belong to nobody, until the plane proves
// that nobody can store into them (M1, M4).
func (c *Consumer) revoke(e *flow.Env, p *part) {
	p.revoking = true
	e.Pools.Quarantine(p.grant)
	e.Out.Revoke(p.grant)
}

// revoked handles that proof.
func (c *Consumer) revoked(e *flow.Env, h table.Handle) {
	p := c.parts.Get(h)
	if freed := e.Pools.End(p.grant); freed > 0 {
		e.Out.Observe(effects.Observe{Fact: effects.FactReclaimed, Count: freed, ID: uint64(p.grant), Peer: p.who})
	}
	p.grant, p.revoking = 0, false
	c.receptions.Get(p.of).open--
	c.anew(e, h, p)
	c.settle(e, p.of)
}

// unanswered handles a registration without a reply. Its connection is closed, with everything in flight on it.
func (c *Consumer) unanswered(e *flow.Env, h table.Handle, code effects.Code) {
	p := c.parts.Get(h)
	r := c.receptions.Get(p.of)
	e.Links.CloseTaken(&e.Env, p.peer, laneAsks, p.conn)
	p.asks, p.conn = false, 0
	e.Timers.Stop(&p.overdue)
	switch {
	case r.delivered:
		c.settle(e, p.of)
	case p.whole: // The result is known already.
		p.phase = partAnswered
		c.settle(e, p.of)
	case p.attempt < e.Cfg.AttemptsMax && (p.count == 0 || p.grant != 0 && !p.revoking):
		c.becomeLinking(e, h, p)
	default:
		if code == effects.Closed {
			code = effects.PeerLost
		}
		c.stop(e, p.of, code, link.HungUp(code, e.Cfg.ReplyTimeout))
	}
}

// withdraw withdraws a part of a reception after the outcome was delivered.
func (c *Consumer) withdraw(e *flow.Env, h table.Handle, p *part) {
	switch p.phase {
	case partLinking:
		c.parts.Unlink(&c.lines[p.peer.Slot()].asks, h)
		p.phase = partAnswered
		if p.attempt == 0 {
			return
		}
	case partAsking:
	case partAnswered:
		if p.grant != 0 && !p.revoking && !e.Cfg.Leased {
			c.revoke(e, p)
		}
		return
	case partWithdrawing, partPhases:
		return
	}
	if p.whole && p.grant == 0 { // All pages were written, so the reply does not matter.
		p.phase = partAnswered
		return
	}
	if p.grant != 0 && !p.revoking && !e.Cfg.Leased {
		c.revoke(e, p)
	}
	e.Out.Mark(Marks.Withdrawn)
	p.phase, p.queued = partWithdrawing, true
	c.parts.PushBack(&c.lines[p.peer.Slot()].words, h)
	e.Links.Stir(p.peer)
}

// tell sends the withdrawal of a part, addressed to the incarnation that was asked.
func (c *Consumer) tell(e *flow.Env, h table.Handle, p *part, conn effects.Conn) {
	p.queued, p.tells, p.wordConn = false, true, conn
	p.told++
	c.off = protocol.PushWithdrawal{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.us), To: protocol.UUID(p.who), Operation: p.operation,
	}
	e.Out.Send(effects.Send{
		Corr: e.Corrs.Open(consumerRef(kindOff, h)), Conn: conn, Body: e.Out.Cut(c.off.Append(e.Out.Arena())),
	})
	e.Timers.Set(&p.answer, e.Now.Add(e.Cfg.ReplyTimeout), consumerRef(timerOff, h))
}

// unheard handles a withdrawal without a reply.
func (c *Consumer) unheard(e *flow.Env, h table.Handle) {
	p := c.parts.Get(h)
	e.Timers.Stop(&p.answer)
	e.Links.CloseTaken(&e.Env, p.peer, laneWords, p.wordConn)
	p.tells, p.wordConn = false, 0
	if p.phase == partWithdrawing && p.told < e.Cfg.AttemptsMax {
		e.Out.Mark(Marks.WithdrawnAgain)
		p.queued = true
		c.parts.PushBack(&c.lines[p.peer.Slot()].words, h)
		e.Links.Stir(p.peer)
		return
	}
	p.phase = partAnswered // The end of the grant has the same effect, with proof.
	c.settle(e, p.of)
}
