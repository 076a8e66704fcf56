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

// Registrations use one lane of a peer, as many at a time as RegisterWindow permits. Withdrawals and errand messages use
// another lane, so that they do not wait behind registrations that wait for a prefill.
const (
	laneRegistrations = link.LaneAlloc
	laneControl       = link.LaneCommit
)

// queuePart appends a part to the queue of its peer. A part that was sent before goes to the front.
func (c *Consumer) queuePart(e *flow.Env, h table.Handle, p *part) {
	p.phase, p.registrationConn, p.linkAttempt = partLinking, 0, e.Links.Outbound(p.peer).AttemptNumber()
	if q := &c.peerQueues[p.peer.Slot()].registrations; p.attempt > 0 {
		e.Out.Mark(Marks.AskAgain)
		c.parts.PushFront(q, h)
	} else {
		c.parts.PushBack(q, h)
	}
	c.sendQueued(e, p.peer)
}

// sendQueued sends what is queued for a peer, as far as the lanes permit.
func (c *Consumer) sendQueued(e *flow.Env, peer table.Handle) {
	l := &c.peerQueues[peer.Slot()]
	for h := l.withdrawals.Front(); h != 0; h = l.withdrawals.Front() {
		p := c.parts.Get(h)
		if g, _ := e.Links.Outbound(peer).Gate(); g != link.GateOpen || c.hasOtherIncarnation(e, p) {
			// The incarnation that was asked is gone or unreachable. The end of the grant has the same effect as a
			// withdrawal, with proof.
			c.parts.Unlink(&l.withdrawals, h)
			p.withdrawalQueued, p.phase = false, partIdle
			c.continueReception(e, p.reception)
			continue
		}
		conn := e.Links.AcquireLane(&e.Env, peer, laneControl)
		if conn == 0 {
			break
		}
		c.parts.Unlink(&l.withdrawals, h)
		c.sendWithdrawal(e, h, p, conn)
	}
	for h := l.registrations.Front(); h != 0; h = l.registrations.Front() {
		p := c.parts.Get(h)
		g, cause := e.Links.Outbound(peer).Gate()
		if g == link.GateOpen {
			conn := e.Links.AcquireLane(&e.Env, peer, laneRegistrations)
			if conn == 0 {
				break
			}
			c.parts.Unlink(&l.registrations, h)
			// No queue contains the part now; sendRegistration sets the phase.
			p.phase = partIdle
			c.sendRegistration(e, h, p, conn)
			continue
		}
		if g == link.GateShut || g == link.GateAbsent && p.linkAttempt == e.Links.Outbound(peer).AttemptNumber() {
			break
		}
		why := effects.Why{}
		if w := e.Links.Outbound(peer).FailureReason(); w != nil {
			why = *w
		}
		c.failReception(e, p.reception, cause, why)
	}
	c.sendKeep(e, peer)
}

// hasOtherIncarnation reports whether the peer's incarnation is not the one that was asked (M2).
func (c *Consumer) hasOtherIncarnation(e *flow.Env, p *part) bool {
	_, currentID := e.Links.IncarnationOf(p.peer).Link()
	return currentID != p.peerID
}

// sendRegistration sends the registration of a part. The pages are granted in this step, before the message.
func (c *Consumer) sendRegistration(e *flow.Env, h table.Handle, p *part, conn effects.Conn) {
	r, remote := c.receptions.Get(p.reception), e.Links.IncarnationOf(p.peer)
	_, currentID := remote.Link()
	if p.attempt > 0 && currentID != p.peerID {
		e.Out.Mark(Marks.OtherLife)
		e.Links.ReturnLane(p.peer, laneRegistrations, conn)
		c.failReception(e, p.reception, effects.PeerLost, effects.Why{Field: "incarnation", Theirs: "different from that of the request",
			Remedy: "dispatch the request anew: a restarted producer has no block of it"})
		return
	}
	if p.attempt == 0 {
		p.peerID, p.selfID = currentID, remote.SelfID()
		if code, why := c.grantPages(e, h, p, r); code != effects.OK {
			e.Links.ReturnLane(p.peer, laneRegistrations, conn)
			c.failMisfit(e, p.reception, code, why)
			return
		}
	}
	p.phase, p.registrationConn, p.registrationInFlight = partRegistering, conn, true
	p.attempt++
	if !p.asked {
		p.asked, r.sentAt = true, e.Now
		r.unsentParts--
	}
	m := &c.registration
	*m = protocol.PushRegistration{
		RequestID: r.request, EngineID: []byte(c.cfg.EngineID), Host: []byte(c.cfg.SideHost), Port: uint32(c.cfg.SidePort),
		TPSize: c.cfg.Geometry.Ranks, Blocks: c.listBlocks(r),
		Remote: protocol.PushProducer{
			EngineID: r.engine, Host: []byte(e.Links.Outbound(p.peer).Addr().Host),
			Port: uint32(e.Links.Outbound(p.peer).Addr().AllocPort), TPSize: r.ranks, PPSize: r.stages,
		},
		HasExt: true,
		Ext: protocol.PushRegistrationExt{
			Version: link.VersionMax, Incarnation: protocol.UUID(p.selfID), To: protocol.UUID(p.peerID), Operation: p.operation,
			Attempt: p.attempt, Transfer: r.transfer, First: m.Ext.First[:0], Ends: m.Ext.Ends[:0], Grant: uint64(p.grant),
			Generations: m.Ext.Generations[:0], GrantedNS: int64(p.grantedAt), LeaseNS: uint64(max(0, r.grantsEnd.Sub(p.grantedAt))),
			PatienceNS: uint64(max(0, r.deadline.Sub(e.Now))), Caches: p.cacheSum, Stamps: remote.ClockStamps(e.Now),
			Trace: r.trace.Context.Wire(),
		},
	}
	// A group that is not listed has no blocks, and runs from zero to zero.
	for range m.Blocks {
		m.Ext.First, m.Ext.Ends = append(m.Ext.First, 0), append(m.Ext.Ends, 0)
	}
	for _, x := range r.blocks.groups {
		m.Ext.First[x.Group], m.Ext.Ends[x.Group] = x.First, x.End
	}
	for _, page := range e.Pools.PagesOf(p.grant) {
		m.Ext.Generations = append(m.Ext.Generations, uint64(page.Generation))
	}
	e.Out.Send(effects.Send{
		Corr: e.Corrs.Open(consumerRef(kindRegister, h)), Conn: conn, Body: e.Out.Cut(m.Append(e.Out.Arena())),
	})
}

// listBlocks returns the blocks of a reception in the format of the message: a list for each group, up to the last
// group with blocks.
func (c *Consumer) listBlocks(r *reception) [][]uint64 {
	c.blockGroups = c.blockGroups[:0]
	for _, x := range r.blocks.groups {
		for len(c.blockGroups) <= int(x.Group) {
			c.blockGroups = append(c.blockGroups, nil)
		}
		list := c.blockGroups[x.Group]
		for _, n := range x.Logical {
			list = append(list, uint64(n))
		}
		c.blockGroups[x.Group] = list
	}
	return c.blockGroups
}

// grantPages grants the pages of a part to its peer. It fails if the peer's cache does not fit, or no grant is free.
func (c *Consumer) grantPages(e *flow.Env, h table.Handle, p *part, r *reception) (effects.Code, *effects.Why) {
	remote := e.Links.IncarnationOf(p.peer)
	peerGeometry, ok := decodeGeometry(remote.Geometry(), c.peerGeometry)
	c.peerGeometry, p.cacheSum = peerGeometry, Checksum(c.ownNumbers, remote.Geometry())
	switch {
	case !ok:
		return effects.Unsupported, &effects.Why{
			Field: "kvf_geometry", Theirs: "missing or invalid", Ours: "that of a producer",
			Remedy: "register blocks at ranks that finish some",
		}
	case peerGeometry.Ranks != r.ranks || peerGeometry.Stages != r.stages || peerGeometry.Rank != p.rank || peerGeometry.Stage != p.stage:
		return effects.Mismatch, &effects.Why{
			Field: flow.EntryName("Producers", int(p.producerIndex)), Ours: "rank " + flow.FormatCount(p.rank) + " of " + flow.FormatCount(r.ranks) +
				", stage " + flow.FormatCount(p.stage) + " of " + flow.FormatCount(r.stages),
			Theirs: "rank " + flow.FormatCount(peerGeometry.Rank) + " of " + flow.FormatCount(peerGeometry.Ranks) + ", stage " +
				flow.FormatCount(peerGeometry.Stage) + " of " + flow.FormatCount(peerGeometry.Stages),
			Remedy: "name the ranks in the order of geometry.ProducersOf, or correct register.tp_size and register.pp_size there",
		}
	}
	plan, err := geometry.MatchRanks(&peerGeometry, c.cfg.Geometry)
	if err != nil {
		return geometryReason(err)
	}
	r.plans[p.producerIndex] = partPlan{isKnown: true, plan: plan}
	if code, why := c.checkCoverage(r); code != effects.OK {
		return code, why
	}
	pages, err := plan.ConsumerPages(r.blocks.groups)
	if err != nil {
		return geometryReason(err)
	}
	p.grantedAt = e.Now
	n := pages.Len()
	if n == 0 {
		return effects.OK, nil
	}
	if !e.Pools.FitsShare(e.Pool, ownClass, uint32(n)) || e.Pools.IsGrantTableFull() {
		e.Out.Mark(Marks.GrantsFull)
		return effects.TooMany, &effects.Why{
			Field: "grants", Ours: flow.FormatCount(e.Pools.CountGrants()) + " open, which is the maximum",
			Remedy: "retry when a Register has ended",
		}
	}
	c.pages = c.pages[:0]
	for index := range pages.All() {
		if length := uint32(e.Cfg.PageBytes); p.reregistrations > 0 {
			c.pages = append(c.pages, e.Pool.BeginGeneration(index, length))
		} else {
			c.pages = append(c.pages, e.Pool.CurrentPage(index, length))
		}
	}
	e.Work.SpendRows(len(c.pages))
	id, granted := e.Pools.GrantClaimedPages(e.Pool, ownClass, c.pages, consumerRef(kindGrant, h))
	p.grant, p.grantedPages = id, uint32(len(granted))
	r.openGrants++
	e.Out.Grant(effects.Grant{ID: id, Peer: p.peerID, Pages: granted})
	e.Out.Observe(effects.Observe{Fact: effects.FactGranted, Count: p.grantedPages, ID: uint64(id), Peer: p.peerID})
	return effects.OK, nil
}

// checkCoverage checks, as soon as all plans are known, that the ranks together write all of the blocks.
func (c *Consumer) checkCoverage(r *reception) (effects.Code, *effects.Why) {
	c.plans = c.plans[:0]
	for i := range r.plans {
		if !r.plans[i].isKnown {
			return effects.OK, nil
		}
		c.plans = append(c.plans, r.plans[i].plan)
	}
	if err := geometry.CheckCoverage(c.cfg.Geometry, c.plans); err != nil {
		return geometryReason(err)
	}
	return effects.OK, nil
}

// onRegistrationReplied handles the reply to a registration: nothing of the registration writes any more.
func (c *Consumer) onRegistrationReplied(e *flow.Env, h table.Handle, body []byte) {
	p := c.parts.Get(h)
	p.registrationInFlight = false
	e.Timers.Stop(&p.registrationTimer)
	e.Links.ReleaseLane(&e.Env, p.peer, laneRegistrations, p.registrationConn)
	p.registrationConn = 0
	c.handleEnd(e, h, p, body)
}

// onWithdrawalReplied handles the reply to a withdrawal, which has the same meaning as the reply to the registration.
func (c *Consumer) onWithdrawalReplied(e *flow.Env, h table.Handle, body []byte) {
	p := c.parts.Get(h)
	p.withdrawalInFlight = false
	e.Timers.Stop(&p.withdrawalTimer)
	e.Links.ReleaseLane(&e.Env, p.peer, laneControl, p.withdrawalConn)
	p.withdrawalConn = 0
	c.handleEnd(e, h, p, body)
}

// handleEnd handles the end message of a producer for a part.
func (c *Consumer) handleEnd(e *flow.Env, h table.Handle, p *part, body []byte) {
	m := &c.endMessage
	r := c.receptions.Get(p.reception)
	if err := m.Decode(body, &e.Cfg.Wire); err != nil || effects.Incarnation(m.Incarnation) != p.peerID ||
		m.Operation != p.operation {
		e.Out.Mark(Marks.AnswerSenseless)
		why := effects.Why{Field: "PUSH_END", Ours: "a reply of the producer to this registration",
			Theirs: "a reply to another registration, or of another producer",
			Remedy: "check which program listens there"}
		if err != nil {
			why = link.DecodeReason(err)
		}
		if r.delivered {
			p.phase = partIdle
			c.continueReception(e, p.reception)
			return
		}
		c.failReception(e, p.reception, effects.Malformed, why)
		return
	}
	if !c.hasOtherIncarnation(e, p) {
		e.Links.IncarnationOf(p.peer).RecordStamps(m.Stamps)
	}
	code := effects.CodeFromWire(m.Code)
	switch {
	case code != effects.Stale && code != effects.Forbidden || !e.Cfg.Leased:
		c.endPartGrant(e, p, code == effects.OK && !r.delivered)
	case p.grant != 0 && !p.revoking:
		// A producer that does not know this node cannot know what its earlier incarnation has in flight (M4). A
		// producer that forbids this message has not looked whether it writes for an earlier one.
		c.revokeGrant(e, p)
	}
	if p.withdrawalQueued { // The queued withdrawal is superfluous now.
		c.parts.Unlink(&c.peerQueues[p.peer.Slot()].withdrawals, h)
		p.withdrawalQueued = false
	}
	p.phase = partIdle
	switch {
	case r.delivered || p.fullyWritten: // Pages that landed are complete, whatever the producer says.
		c.continueReception(e, p.reception)
	case (code == effects.Expired || code == effects.Stale) && p.reregistrations < e.Cfg.AttemptsMax && e.Now < r.deadline:
		// The producer considered the grant expired by its anchor for this node's clock, which the reply has
		// improved; or it does not know this node any more. The old grant has to end first.
		e.Out.Mark(Marks.ExpiredEarly)
		if code == effects.Stale {
			c.repeatHandshake(e, p.peer, p.peerID)
		}
		p.reregistrations++
		p.mustReregister = true
		c.reregisterPart(e, h, p)
	case code != effects.OK:
		e.Out.Mark(Marks.Refused)
		c.failReception(e, p.reception, code, effects.Why{
			Addr: producerAddr(e, p), Peer: p.peerID, Field: flow.EntryName("Producers", int(p.producerIndex)), Said: effects.SanitizeText(m.Reason),
		})
	case p.grantedPages > 0:
		e.Out.Mark(Marks.SaidWhole)
		c.failReception(e, p.reception, effects.Faulted, effects.Why{
			Addr: producerAddr(e, p), Peer: p.peerID, Field: flow.EntryName("Producers", int(p.producerIndex)), Theirs: "reported as written",
			Ours: "incomplete at the end of the time", Remedy: "dispatch the request anew, and look at both logs",
		})
	default: // The producer had nothing to write.
		r.unfinishedParts--
		c.continueReception(e, p.reception)
	}
}

// repeatHandshake repeats the handshake with a peer that does not know this node, unless the link already leads to
// another incarnation of the peer.
func (c *Consumer) repeatHandshake(e *flow.Env, peer table.Handle, peerID effects.Incarnation) {
	g, _ := e.Links.Outbound(peer).Gate()
	if _, currentID := e.Links.IncarnationOf(peer).Link(); g == link.GateOpen && currentID == peerID {
		e.Out.Mark(Marks.IntroduceAgain)
		e.Links.FailPeer(&e.Env, peer, effects.Stale, *flow.UnknownIncarnationReason())
	}
}

// failMisfit ends a reception because a part cannot be granted. If the cause is the description of a peer's cache, a
// hello of any of the peers may have been damaged, so the handshakes are repeated.
func (c *Consumer) failMisfit(e *flow.Env, h table.Handle, code effects.Code, why *effects.Why) {
	peers := c.peers[:0]
	for _, ph := range c.receptions.Get(h).parts {
		if p := c.parts.Get(ph); p != nil && p.reception == h && code != effects.TooMany {
			peers = append(peers, p.peer)
		}
	}
	c.peers = peers
	c.failReception(e, h, code, *why)
	for _, peer := range peers {
		if e.Links.Outbound(peer).IsDoubtful(e.Now) {
			e.Out.Mark(Marks.IntroduceAgain)
			e.Links.FailPeer(&e.Env, peer, effects.Stale, *cacheMismatchReason())
		}
	}
}

// reregisterPart registers a part again as another operation under another grant, if a new registration is due and the
// old grant has ended.
func (c *Consumer) reregisterPart(e *flow.Env, h table.Handle, p *part) {
	if !p.mustReregister || p.grant != 0 || p.registrationInFlight || c.receptions.Get(p.reception).delivered {
		return
	}
	c.lastOperation++
	p.operation, p.attempt, p.mustReregister = c.lastOperation, 0, false
	c.queuePart(e, h, p)
}

// producerAddr returns the address of a part's producer for error reports.
func producerAddr(e *flow.Env, p *part) effects.Addr {
	at := e.Links.Outbound(p.peer).Addr()
	return effects.Addr{Host: at.Host, Port: at.AllocPort}
}

// endPartGrant handles the statement of a producer that it does not store into the pages of a part any more. On leased
// planes the statement is also the commit, if it arrives in time. On fenced planes the plane itself ends what the
// producer left open.
func (c *Consumer) endPartGrant(e *flow.Env, p *part, commits bool) {
	if p.grant == 0 {
		return
	}
	r := c.receptions.Get(p.reception)
	switch {
	case !e.Cfg.Leased && !p.revoking:
		c.revokeGrant(e, p)
	case !e.Cfg.Leased:
	case p.revoking:
		e.Pools.ReclaimOpenPages(p.grant)
	default:
		if commits && e.Now <= r.grantsEnd {
			c.pages = append(c.pages[:0], e.Pools.PagesOf(p.grant)...)
			for _, page := range c.pages {
				e.Pools.LandPage(p.grant, page)
			}
			p.fullyWritten = true
			r.unfinishedParts--
		}
		e.Pools.EndGrant(p.grant)
		p.grant = 0
		r.openGrants--
	}
}

// onLanded handles landed pages, as reported by a fenced plane.
func (c *Consumer) onLanded(e *flow.Env, h table.Handle, ev *effects.Landed) {
	p := c.parts.Get(h)
	if p == nil || p.grant != ev.Grant || p.peerID != ev.Peer {
		landing.RefuseUnknown(&e.Env, ev)
		return
	}
	r, code := c.receptions.Get(p.reception), effects.OK
	if !ev.Complete {
		e.Out.Mark(Marks.LandedPartly)
		code = effects.Faulted
	}
	for _, page := range ev.Pages {
		if _, ok := e.Pools.LandPage(p.grant, page); !ok {
			code = effects.Withdrawn
		}
	}
	if r.delivered {
		code = effects.Withdrawn // The outcome was delivered, so nobody reads the page.
	}
	e.Out.Confirm(ev.Landing, code)
	switch {
	case e.Pools.CountOpenPages(p.grant) == 0 && !p.revoking:
		e.Pools.EndGrant(p.grant)
		p.grant = 0
		r.openGrants--
		if code == effects.OK {
			p.fullyWritten = true
			r.unfinishedParts--
		}
	case !p.revoking:
		c.revokeGrant(e, p)
	}
	// The registration was received, and must not be sent again.
	if p.phase == partLinking && !r.delivered {
		e.Out.Mark(Marks.LandedUnasked)
		c.parts.Unlink(&c.peerQueues[p.peer.Slot()].registrations, h)
		if p.phase = partIdle; !p.fullyWritten {
			c.failReception(e, p.reception, effects.Faulted, effects.Why{
				Addr: producerAddr(e, p), Peer: p.peerID, Field: flow.EntryName("Producers", int(p.producerIndex)), Theirs: "incomplete",
				Remedy: "dispatch the request anew, and look at both logs",
			})
			return
		}
	}
	c.continueReception(e, p.reception)
}

// revokeGrant takes a grant back. Invariant: its pages are in quarantine, and belong to nobody, until the plane proves
// that nobody can store into them (M1, M4).
func (c *Consumer) revokeGrant(e *flow.Env, p *part) {
	p.revoking = true
	e.Pools.QuarantineGrant(p.grant)
	e.Out.Revoke(p.grant)
}

// onRevoked handles that proof.
func (c *Consumer) onRevoked(e *flow.Env, h table.Handle) {
	p := c.parts.Get(h)
	if freed := e.Pools.EndGrant(p.grant); freed > 0 {
		e.Out.Observe(effects.Observe{Fact: effects.FactReclaimed, Count: freed, ID: uint64(p.grant), Peer: p.peerID})
	}
	p.grant, p.revoking = 0, false
	reception := p.reception
	c.receptions.Get(reception).openGrants--
	c.reregisterPart(e, h, p)
	// The reception is over already if the peer cannot be reached any more, so that nothing could be registered again.
	if c.receptions.Get(reception) != nil {
		c.continueReception(e, reception)
	}
}

// onRegistrationUnanswered handles a registration without a reply. Its connection is closed, with everything in flight
// on it.
func (c *Consumer) onRegistrationUnanswered(e *flow.Env, h table.Handle, code effects.Code) {
	p := c.parts.Get(h)
	r := c.receptions.Get(p.reception)
	e.Links.CloseLane(&e.Env, p.peer, laneRegistrations, p.registrationConn)
	p.registrationInFlight, p.registrationConn = false, 0
	e.Timers.Stop(&p.registrationTimer)
	switch {
	case r.delivered:
		c.continueReception(e, p.reception)
	case p.fullyWritten: // The result is known already.
		p.phase = partIdle
		c.continueReception(e, p.reception)
	case p.attempt < e.Cfg.AttemptsMax && (p.grantedPages == 0 || p.grant != 0 && !p.revoking):
		c.queuePart(e, h, p)
	default:
		if code == effects.Closed {
			code = effects.PeerLost
		}
		c.failReception(e, p.reception, code, link.ConnEndedReason(code, e.Cfg.ReplyTimeout))
	}
}

// withdrawPart withdraws a part of a reception after the outcome was delivered.
func (c *Consumer) withdrawPart(e *flow.Env, h table.Handle, p *part) {
	switch p.phase {
	case partLinking:
		c.parts.Unlink(&c.peerQueues[p.peer.Slot()].registrations, h)
		p.phase = partIdle
		if p.attempt == 0 {
			return
		}
	case partRegistering:
	case partIdle:
		if p.grant != 0 && !p.revoking && !e.Cfg.Leased {
			c.revokeGrant(e, p)
		}
		return
	case partWithdrawing, partPhaseCount:
		return
	}
	if p.fullyWritten && p.grant == 0 { // All pages were written, so the reply does not matter.
		p.phase = partIdle
		return
	}
	if p.grant != 0 && !p.revoking && !e.Cfg.Leased {
		c.revokeGrant(e, p)
	}
	e.Out.Mark(Marks.Withdrawn)
	p.phase, p.withdrawalQueued = partWithdrawing, true
	c.parts.PushBack(&c.peerQueues[p.peer.Slot()].withdrawals, h)
	e.Links.MarkChanged(p.peer)
}

// sendWithdrawal sends the withdrawal of a part, addressed to the incarnation that was asked.
func (c *Consumer) sendWithdrawal(e *flow.Env, h table.Handle, p *part, conn effects.Conn) {
	p.withdrawalQueued, p.withdrawalInFlight, p.withdrawalConn = false, true, conn
	p.withdrawalsSent++
	c.withdrawal = protocol.PushWithdrawal{
		Version: link.VersionMax, Incarnation: protocol.UUID(p.selfID), To: protocol.UUID(p.peerID), Operation: p.operation,
	}
	e.Out.Send(effects.Send{
		Corr: e.Corrs.Open(consumerRef(kindWithdrawal, h)), Conn: conn, Body: e.Out.Cut(c.withdrawal.Append(e.Out.Arena())),
	})
	e.Timers.Set(&p.withdrawalTimer, e.Now.Add(e.Cfg.ReplyTimeout), consumerRef(timerWithdrawal, h))
}

// onWithdrawalUnanswered handles a withdrawal without a reply.
func (c *Consumer) onWithdrawalUnanswered(e *flow.Env, h table.Handle) {
	p := c.parts.Get(h)
	e.Timers.Stop(&p.withdrawalTimer)
	e.Links.CloseLane(&e.Env, p.peer, laneControl, p.withdrawalConn)
	p.withdrawalInFlight, p.withdrawalConn = false, 0
	if p.phase == partWithdrawing && p.withdrawalsSent < e.Cfg.AttemptsMax {
		e.Out.Mark(Marks.WithdrawnAgain)
		p.withdrawalQueued = true
		c.parts.PushBack(&c.peerQueues[p.peer.Slot()].withdrawals, h)
		e.Links.MarkChanged(p.peer)
		return
	}
	p.phase = partIdle // The end of the grant has the same effect, with proof.
	c.continueReception(e, p.reception)
}
