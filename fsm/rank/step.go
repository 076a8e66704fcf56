package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/land"
	"github.com/kvferry/kvferry/fsm/lease"
	"github.com/kvferry/kvferry/fsm/receiver"
	"github.com/kvferry/kvferry/fsm/sender"
	"github.com/kvferry/kvferry/protocol"
)

// settleMax bounds the deadlines and peers that one step handles; what is left is
// the next Tick's, which is due at once.
const settleMax = 64

// Step consumes one event.
func (r *Rank) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	if now < r.now {
		panic("BUG: the driver's clock ran backwards")
	}
	r.now = now
	e := flow.Env{
		Env: env.Env{
			Now: now, Out: out, Pools: &r.pools, Pool: r.pools.Pool(0), Timers: &r.timers, Corrs: &r.corrs,
			Conns: &r.conns, Names: &r.links,
		},
		Draining: r.draining, Cfg: &r.shared, Links: &r.links, Store: &r.receiver.Store,
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
		r.onReceived(v, x)
	case *effects.Opened:
		//exhaustive:ignore
		switch ref := r.close(x.Corr); ref.Owner {
		case kernel.OwnerLink:
			r.links.OnOpened(v, ref, x)
		case kernel.OwnerSender:
			r.sender.OnProxyOpened(v, x)
		case kernel.OwnerNotices, kernel.OwnerLease:
			r.receiver.OnOpened(v, ref, x)
		default:
			foreign()
		}
	case *effects.ConnLost:
		if ref := r.conns.Find(x.Conn); ref.Owner == kernel.OwnerLink {
			r.links.OnConnLost(v, ref)
		} else {
			r.sender.OnConnLost(v, x.Conn)
			r.receiver.OnConnLost(v, x.Conn)
		}
	case *effects.Replied:
		//exhaustive:ignore
		switch ref := r.close(x.Corr); ref.Owner {
		case kernel.OwnerLink:
			r.links.OnReplied(v, ref, x.Body)
		case kernel.OwnerSender:
			r.sender.OnReplied(v, &r.links, ref, x.Body)
		case kernel.OwnerLease:
			r.receiver.OnRenewed(v, ref, x.Body)
		default:
			foreign()
		}
	case *effects.Unanswered:
		//exhaustive:ignore
		switch ref := r.close(x.Corr); ref.Owner {
		case kernel.OwnerLink:
			r.links.OnUnanswered(v, ref, x.Code)
		case kernel.OwnerSender:
			r.sender.OnUnanswered(v, &r.links, ref, x.Code)
		case kernel.OwnerLease:
			r.receiver.OnUnanswered(v, ref)
		default:
			foreign()
		}
	case *effects.SendDone:
		if ref := r.close(x.Corr); ref.Owner == kernel.OwnerSender {
			r.sender.OnSendDone(v, ref, x.Code)
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
		case kernel.OwnerSender:
			r.sender.OnTransferDone(v, &r.links, ref, x)
		case kernel.OwnerPullTarget, kernel.OwnerPipeline:
			r.receiver.OnTransferDone(v, &r.links, ref, x)
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
		r.sender.OnCopyDone(v, &r.links, ref, x)
	case *effects.Settled:
		//exhaustive:ignore
		switch ref := r.close(x.Corr); ref.Owner {
		case kernel.OwnerSender:
			r.sender.OnSettled(v, &r.links, ref)
		case kernel.OwnerPullTarget, kernel.OwnerPipeline:
			r.receiver.OnSettled(v, ref)
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
		case kernel.OwnerSender:
			r.sender.OnRevoked(v, &r.links, ref)
		case kernel.OwnerPushTarget, kernel.OwnerPullTarget:
			r.receiver.OnRevoked(v, x)
		case kernel.OwnerNone: // It ended by its reader's word meanwhile.
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
func (r *Rank) onReceived(v *env.Env, e *effects.Received) {
	switch role := r.cfg.Role; {
	case e.Channel == effects.ChannelDone && role.Sends():
		r.sender.OnDone(v, &r.links, e)
	case e.Channel == effects.ChannelAlloc && role.Receives():
		r.receiver.OnAlloc(v, &r.links, e)
	case e.Channel == effects.ChannelInit && role.Sends() && e.Request != 0 &&
		protocol.HasTag(e.Body, protocol.TagRenewRequest, &r.cfg.Wire) && r.onRenew(v, e):
	case e.Channel == effects.ChannelInit && role.Receives():
		r.links.OnInit(v, e, r.receiver.Busy())
		if class := r.links.Replaced(); class != 0 {
			r.receiver.OnGuestLeft(class)
		}
	case e.Channel == effects.ChannelInit && e.Request != 0:
		r.links.RefuseInit(v, e)
	default:
		unserved(v, e)
	}
}

// onRenew handles a reader's word on its leases. Each id is done with before the next is looked for: the end of a lease
// may free memory and let go on who waited for that, and an id said twice finds nothing the second time.
func (r *Rank) onRenew(v *env.Env, e *effects.Received) bool {
	m := &r.renewals
	if !m.Begin(v, &r.cfg.Wire, e) {
		return false
	}
	for _, id := range m.Finished() {
		if ref, ok := r.leased(v, id); ok {
			m.Known()
			r.sender.OnFinished(v, &r.links, ref)
		}
		m.Ended(id)
	}
	for _, id := range m.Wanted() {
		what, ttl := lease.Gone, effects.Duration(0)
		if ref, ok := r.leased(v, id); ok {
			what, ttl = r.sender.Extend(v, ref)
		}
		m.Extended(v, id, what, ttl)
	}
	m.Reply(v, e.Request)
	return true
}

// leased is who granted the lease that a reader speaks of, if it stands and is that reader's.
func (r *Rank) leased(v *env.Env, id uint64) (kernel.Ref, bool) {
	ref := v.Pools.Owner(effects.GrantID(id))
	if ref.Owner != kernel.OwnerSender {
		return kernel.Ref{}, false
	}
	return ref, r.renewals.Its(r.sender.Lease(ref), id)
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
	if r.cfg.Role.Sends() && r.onSend(v, x) || r.cfg.Role.Receives() && r.onReceive(v, x) {
		return
	}
	// A command of another role, or of somebody else's machine.
	v.Out.Deliver(effects.Deliver{Ticket: x.Ticket, Code: effects.Unsupported, Why: &effects.Why{
		Stage: effects.StageCommand, Field: "pd_role", Theirs: r.cfg.Role.String(), Ours: "the other one for this command",
		Remedy: "send the command to the right node",
	}})
}

// onSend handles a command of the sending side, and says whether it is one.
func (r *Rank) onSend(v *env.Env, e *effects.Command) bool {
	switch c := e.Body.(type) {
	case *sender.Reserve:
		r.sender.OnReserve(v, e.Ticket, c)
	case *sender.Release:
		r.sender.OnRelease(v, e.Ticket, c)
	case *sender.Put:
		r.sender.OnPut(v, &r.links, e.Ticket, c)
	case *sender.Abort:
		r.sender.OnAbort(v, &r.links, e.Ticket, c)
	default:
		return false
	}
	return true
}

// onReceive handles a command of the receiving side, and says whether it is one.
func (r *Rank) onReceive(v *env.Env, e *effects.Command) bool {
	switch c := e.Body.(type) {
	case *receiver.Get:
		r.receiver.OnGet(v, e.Ticket, c)
	case *receiver.Fetch:
		r.receiver.OnFetch(v, &r.links, e.Ticket, c)
	case *receiver.Contains:
		r.receiver.OnContains(v, e.Ticket, c)
	case *receiver.Release:
		r.receiver.OnRelease(v, e.Ticket, c)
	case *receiver.Abandon:
		r.receiver.OnAbandon(v, e.Ticket, c)
	case *receiver.GiveUp:
		r.receiver.OnGiveUp(v, e.Ticket, c)
	case *receiver.Abort:
		r.receiver.OnAbort(v, e.Ticket, c)
	default:
		return false
	}
	return true
}

// settle lets go on whoever waited for what this step set free.
func (r *Rank) settle(e *flow.Env) {
	v := &e.Env
	r.more = false
	budget := settleMax
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
		case kernel.OwnerSender:
			r.sender.OnTimer(v, &r.links, ref)
		case kernel.OwnerStore:
			e.Store.Due(ref.Subject, v)
		case kernel.OwnerReceiver, kernel.OwnerPipeline, kernel.OwnerPending, kernel.OwnerPushTarget,
			kernel.OwnerPullTarget, kernel.OwnerNotices, kernel.OwnerLease:
			r.receiver.OnTimer(v, ref)
		case kernel.OwnerRank:
			r.drain.timer = 0
			r.endDrain(v, effects.Expired)
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
		r.sender.Pump(v, &r.links, h)
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
	for r.freed != r.pools.Freed() || sends && r.sender.Shifted() || receives && r.receiver.Shifted() {
		r.freed = r.pools.Freed()
		if sends {
			r.sender.Admit(v, &r.links)
		}
		if receives {
			r.receiver.AdmitFetches(v)
			r.receiver.Admit(v, &r.links, r.sender.Line())
		}
	}
	if receives {
		r.receiver.Wake(v) // A plain sender that is trusted makes chunks readable as it is served.
		r.receiver.StartFetches(v, &r.links)
	}
	r.maybeEndDrain(v)
	r.more = budget == 0
}
