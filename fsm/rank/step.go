package rank

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/land"
	"github.com/kvferry/kvferry/fsm/lease"
	"github.com/kvferry/kvferry/fsm/pd/recall"
	"github.com/kvferry/kvferry/protocol"
)

// Step consumes one event.
func (r *Rank) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	if now < r.now {
		panic("BUG: the driver's clock ran backwards")
	}
	r.now = now
	e := flow.Env{
		Env: env.Env{
			Now: now, Out: out, Pools: &r.pools, Pool: r.pools.Pool(0), Timers: &r.timers, Corrs: &r.corrs,
			Conns: &r.conns, Tickets: &r.tickets, Names: &r.links,
		},
		Draining: r.draining, Cfg: &r.shared, Commands: &r.commands, Links: &r.links, Breakers: &r.breakers,
		Store: &r.receiver.Store,
	}
	if host := r.pools.Pool(HostPool); host.Total() > 0 {
		e.Pool, e.Engine = host, e.Pool
	}
	v := &e.Env
	switch x := ev.(type) {
	case *effects.Tick:
	case *effects.Command:
		r.onCommand(&e, x)
	case *effects.Received:
		r.onReceived(&e, x)
	case *effects.Opened:
		//exhaustive:ignore
		switch ref := r.close(x.Corr); ref.Owner {
		case kernel.OwnerLink:
			r.links.OnOpened(v, ref, x)
		case kernel.OwnerEngine:
			r.commands.Opened(v, x)
		case kernel.OwnerRecallSource:
			r.recalls.source.Step(&e, ref, x)
		case kernel.OwnerNotices, kernel.OwnerLease:
			r.receiver.OnOpened(v, ref, x)
		default:
			foreign()
		}
	case *effects.ConnLost:
		if ref := r.conns.Find(x.Conn); ref.Owner == kernel.OwnerLink {
			r.links.OnConnLost(v, ref)
		} else if ref.Owner == kernel.OwnerRecallSource {
			r.recalls.source.Step(&e, ref, x)
		} else {
			r.commands.ConnLost(v, x.Conn)
			r.receiver.OnConnLost(v, x.Conn)
		}
	case *effects.Replied:
		//exhaustive:ignore
		switch ref := r.close(x.Corr); ref.Owner {
		case kernel.OwnerLink:
			r.links.OnReplied(v, ref, x.Body)
		case kernel.OwnerPushSource:
			r.pushSource.Step(&e, ref, x)
		case kernel.OwnerPullSource:
			r.pullSource.Step(&e, ref, x)
		case kernel.OwnerLease:
			r.receiver.OnRenewed(v, ref, x.Body)
		case kernel.OwnerRecallSource:
			r.recalls.source.Step(&e, ref, x)
		default:
			foreign()
		}
	case *effects.Unanswered:
		//exhaustive:ignore
		switch ref := r.close(x.Corr); ref.Owner {
		case kernel.OwnerLink:
			r.links.OnUnanswered(v, ref, x.Code)
		case kernel.OwnerPushSource:
			r.pushSource.Step(&e, ref, x)
		case kernel.OwnerPullSource:
			r.pullSource.Step(&e, ref, x)
		case kernel.OwnerLease:
			r.receiver.OnUnanswered(v, ref)
		case kernel.OwnerRecallSource:
			r.recalls.source.Step(&e, ref, x)
		default:
			foreign()
		}
	case *effects.SendDone:
		if ref := r.close(x.Corr); ref.Owner == kernel.OwnerEngine {
			r.commands.SendDone(v, ref, x.Code)
		} else {
			r.receiver.OnSendDone(v, ref, x.Code)
		}
	case *effects.Imported:
		r.links.OnImported(v, r.close(x.Corr), x)
	case *effects.LinkLost:
		if x.Link != 0 {
			r.links.OnLinkLost(v, x.Link)
			r.receiver.LookAgain()
			r.receiver.OnLinkLost(v, &r.links, x.Link)
		}
		r.links.OnInboundLost(v, x.Peer)
		r.receiver.OnPeerLost(v, x.Peer)
	case *effects.TransferDone:
		ref, ok := r.corrs.Peek(x.Corr)
		if !ok {
			panic("BUG: a transfer completed twice")
		}
		if x.Settled {
			r.corrs.Close(x.Corr)
		}
		//exhaustive:ignore
		switch ref.Owner {
		case kernel.OwnerPushSource:
			r.pushSource.Step(&e, ref, x)
		case kernel.OwnerPullTarget, kernel.OwnerPipeline:
			r.receiver.OnTransferDone(v, &r.links, ref, x)
		case kernel.OwnerRecallSource:
			r.recalls.source.Step(&e, ref, x)
		default:
			foreign()
		}
	case *effects.CopyDone:
		ref, ok := r.corrs.Peek(x.Corr)
		if !ok {
			panic("BUG: a copy completed twice")
		}
		if x.Settled {
			r.corrs.Close(x.Corr)
		}
		r.pullSource.Step(&e, ref, x)
	case *effects.Settled:
		//exhaustive:ignore
		switch ref := r.close(x.Corr); ref.Owner {
		case kernel.OwnerPushSource:
			r.pushSource.Step(&e, ref, x)
		case kernel.OwnerPullSource:
			r.pullSource.Step(&e, ref, x)
		case kernel.OwnerPullTarget, kernel.OwnerPipeline:
			r.receiver.OnSettled(v, ref)
		case kernel.OwnerRecallSource:
			r.recalls.source.Step(&e, ref, x)
		default:
			foreign()
		}
	case *effects.Scattered:
		r.receiver.OnScattered(v, r.close(x.Corr), x)
	case *effects.Landed:
		if v.Pools.Owner(x.Grant).Owner == kernel.OwnerPushTarget {
			r.receiver.OnLanded(v, x)
		} else {
			land.Unknown(v, x)
		}
	case *effects.Revoked:
		//exhaustive:ignore
		switch ref := v.Pools.Owner(x.Grant); ref.Owner {
		case kernel.OwnerPullSource:
			r.pullSource.Step(&e, ref, x)
		case kernel.OwnerPushTarget, kernel.OwnerPullTarget:
			r.receiver.OnRevoked(v, x)
		case kernel.OwnerNone: // It ended by its reader's word meanwhile.
		case kernel.OwnerRecallTarget:
			r.recalls.target.Step(&e, ref, x)
		default:
			foreign()
		}
	case *effects.Dropped:
		// The link was forgotten when it was dropped.
	}
	r.settle(&e)
}

// foreign is what cannot be: an owner is told of what it never asks for.
func foreign() { panic("BUG: an owner is told of what it never asks for") }

// close takes a completion; a driver that completes twice is broken.
func (r *Rank) close(c effects.Corr) kernel.Ref {
	ref, ok := r.corrs.Close(c)
	if !ok {
		panic("BUG: an effect was completed twice, or never asked for")
	}
	return ref
}

// onReceived routes a message by its channel and, where two sides share one, by its tag.
func (r *Rank) onReceived(e *flow.Env, x *effects.Received) {
	v := &e.Env
	switch role := r.cfg.Role; {
	case x.Channel == effects.ChannelQuery && r.cfg.answers():
		r.recalls.target.Step(e, kernel.Ref{}, x)
	case x.Channel == effects.ChannelDone && role.Sends():
		r.pullSource.Step(e, kernel.Ref{}, x)
	case x.Channel == effects.ChannelAlloc && role.Receives():
		r.receiver.OnAlloc(v, &r.links, x)
	case x.Channel == effects.ChannelInit && role.Sends() && x.Request != 0 &&
		protocol.HasTag(x.Body, protocol.TagRenewRequest, &r.cfg.Wire) && r.onRenew(e, x):
	case x.Channel == effects.ChannelInit && role.Receives():
		r.links.OnInit(v, x, r.busy())
		if class := r.links.Replaced(); class != 0 {
			r.receiver.OnGuestLeft(class)
		}
	case x.Channel == effects.ChannelInit && x.Request != 0:
		r.links.RefuseInit(v, x)
	default:
		unserved(v, x)
	}
}

// onRenew handles a reader's word on its leases. Each id is done with before the next is looked for: the end of a lease
// may free memory and let go on who waited for that, and an id said twice finds nothing the second time.
func (r *Rank) onRenew(e *flow.Env, x *effects.Received) bool {
	v := &e.Env
	m := &r.renewals
	if !m.Begin(v, &r.cfg.Wire, x) {
		return false
	}
	for _, id := range m.Finished() {
		if ref, ok := r.leased(v, id); ok {
			m.Known()
			r.pullSource.Signal(e, ref, flow.Signal{Kind: flow.LeaseEnded})
		}
		m.Ended(id)
	}
	for _, id := range m.Wanted() {
		what, ttl := lease.Gone, effects.Duration(0)
		if ref, ok := r.leased(v, id); ok {
			what, ttl = r.pullSource.Extend(e, ref)
		}
		m.Extended(v, id, what, ttl)
	}
	m.Reply(v, x.Request)
	return true
}

// leased is who granted the lease that a reader speaks of, if it stands and is that reader's.
func (r *Rank) leased(v *env.Env, id uint64) (kernel.Ref, bool) {
	ref := v.Pools.Owner(effects.GrantID(id))
	if ref.Owner != kernel.OwnerPullSource {
		return kernel.Ref{}, false
	}
	return ref, r.renewals.Its(r.pullSource.Lease(ref), id)
}

// unserved notes a message on a channel that this rank does not serve.
func unserved(v *env.Env, e *effects.Received) {
	v.Out.Observe(effects.Observe{
		Fact: effects.FactMalformed, Code: effects.Unsupported, ID: uint64(e.Conn),
		Why: &effects.Why{Stage: effects.StageLink, Field: "channel", Theirs: e.Channel.String(), Ours: "not served"},
	})
}

func (r *Rank) onCommand(e *flow.Env, x *effects.Command) {
	v := &e.Env
	if d, ok := x.Body.(*Drain); ok {
		r.onDrain(e, x.Ticket, d)
		return
	}
	if c, ok := x.Body.(*engine.Abort); ok {
		r.onAbort(e, x.Ticket, c)
		return
	}
	if r.cfg.Role.Sends() && r.onSend(e, x) || r.cfg.Role.Receives() && r.onReceive(v, x) {
		return
	}
	// A command of another role, or of somebody else's machine.
	v.Out.Deliver(effects.Deliver{Ticket: x.Ticket, Code: effects.Unsupported, Why: &effects.Why{
		Stage: effects.StageCommand, Field: "pd_role", Theirs: r.cfg.Role.String(), Ours: "the other one for this command",
		Remedy: "send the command to the right node",
	}})
}

// onSend handles a command of the sending side, and says whether it is one.
func (r *Rank) onSend(e *flow.Env, x *effects.Command) bool {
	switch c := x.Body.(type) {
	case *engine.Reserve:
		r.commands.OnReserve(&e.Env, x.Ticket, c, e.Draining)
	case *engine.Release:
		r.commands.OnRelease(&e.Env, x.Ticket, c)
	case *engine.Put:
		if r.cfg.Pull {
			r.pullSource.Step(e, kernel.Ref{}, x)
		} else {
			r.pushSource.Step(e, kernel.Ref{}, x)
		}
	case *recall.Recall:
		if !r.cfg.Recalls {
			return false
		}
		r.recalls.source.Take(e, x.Ticket, c)
	default:
		return false
	}
	return true
}

// onAbort ends what has the ticket, if that can be ended early.
func (r *Rank) onAbort(e *flow.Env, t effects.Ticket, c *engine.Abort) {
	done := false
	//exhaustive:ignore
	switch ref := r.tickets.Find(c.Target); ref.Owner {
	case kernel.OwnerEngine:
		done = r.commands.Abort(&e.Env, ref)
	case kernel.OwnerPushSource:
		done = r.pushSource.Abort(e, ref)
	case kernel.OwnerPullSource:
		done = r.pullSource.Abort(e, ref)
	case kernel.OwnerGets, kernel.OwnerDeferred:
		done = r.receiver.Abort(&e.Env, ref)
	case kernel.OwnerRecallSource:
		done = r.recalls.source.Abort(e, ref)
	}
	if !done {
		engine.TurnDown(&e.Env, t, effects.NotFound, &effects.Why{
			Field: "Target", Theirs: strconv.FormatUint(uint64(c.Target), 10),
			Ours: "the ticket of a command that has not ended",
		})
		return
	}
	engine.Agree(&e.Env, t)
}

// onReceive handles a command of the receiving side, and says whether it is one.
func (r *Rank) onReceive(v *env.Env, e *effects.Command) bool {
	switch c := e.Body.(type) {
	case *engine.Get:
		r.receiver.OnGet(v, e.Ticket, c)
	case *engine.Fetch:
		r.receiver.OnFetch(v, &r.links, e.Ticket, c)
	case *engine.Contains:
		r.receiver.OnContains(v, e.Ticket, c)
	case *engine.Unpin:
		r.receiver.OnRelease(v, e.Ticket, c)
	case *engine.Abandon:
		r.receiver.OnAbandon(v, e.Ticket, c)
	case *engine.GiveUp:
		r.receiver.OnGiveUp(v, e.Ticket, c)
	default:
		return false
	}
	return true
}

// settle lets go on whoever waited for what this step set free. Deadlines and peers are handled up to a bound; what is
// left is the next Tick's, which is due at once.
func (r *Rank) settle(e *flow.Env) {
	v := &e.Env
	r.more = false
	budget := r.cfg.Tuning.SettleMax
	// A side that this rank does not have has nobody who waits, and is not asked.
	sends, receives := r.cfg.Role.Sends(), r.cfg.Role.Receives()
	for budget > 0 {
		ref, ok := r.timers.Pop(v.Now)
		if !ok {
			break
		}
		budget--
		//exhaustive:ignore
		switch ref.Owner {
		case kernel.OwnerLink:
			r.links.OnTimer(v, ref)
		case kernel.OwnerEngine:
			r.commands.Due(v, ref)
		case kernel.OwnerPushSource:
			r.pushSource.Due(e, ref)
		case kernel.OwnerPullSource:
			r.pullSource.Due(e, ref)
		case kernel.OwnerRecallSource:
			r.recalls.source.Due(e, ref)
		case kernel.OwnerRecallTarget:
			r.recalls.target.Due(e, ref)
		case kernel.OwnerStore:
			e.Store.Due(ref.Subject, v)
		case kernel.OwnerDeferred, kernel.OwnerPipeline, kernel.OwnerPending, kernel.OwnerPushTarget,
			kernel.OwnerPullTarget, kernel.OwnerNotices, kernel.OwnerLease, kernel.OwnerGets:
			r.receiver.OnTimer(v, ref)
		case kernel.OwnerRank:
			r.drain.timer = 0
			r.endDrain(e, effects.Expired)
		default:
			foreign()
		}
	}
	for budget > 0 {
		h, ok := r.links.Changed()
		if !ok {
			break
		}
		budget--
		if of := (kernel.Ref{Subject: h}); r.cfg.Pull {
			r.pullSource.Signal(e, of, flow.Signal{Kind: flow.Changed})
		} else {
			r.pushSource.Signal(e, of, flow.Signal{Kind: flow.Changed})
		}
		r.recalls.source.Signal(e, kernel.Ref{Subject: h}, flow.Signal{Kind: flow.Changed})
	}
	for {
		reached, ok := r.links.NextReached()
		if !ok {
			break
		}
		r.receiver.OnReached(v, reached.Class, reached.Code, reached.Why)
	}
	if receives {
		r.receiver.Wake(v)
	}
	// Who waits for memory looks again when pages became free, and when somebody
	// ahead of him gave up.
	for r.freed != r.pools.Freed() || sends && r.shifted() || receives && r.receiver.Shifted() {
		r.freed = r.pools.Freed()
		if sends {
			r.commands.Admit(v)
			r.pullSource.Admit(e)
		}
		if receives {
			r.receiver.AdmitFetches(v)
			r.receiver.Admit(v, &r.links, &r.commands)
		}
	}
	if receives {
		r.receiver.Wake(v) // A plain sender that is trusted makes chunks readable as it is served.
		r.receiver.StartFetches(v, &r.links)
	}
	r.maybeEndDrain(e)
	r.more = budget == 0
}

// shifted says, once, that somebody at the sending side left a line without what he waited for.
func (r *Rank) shifted() bool {
	reserves, puts := r.commands.LeftLine(), r.pullSource.Shifted()
	return reserves || puts
}
