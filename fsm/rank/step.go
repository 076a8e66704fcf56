package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
)

// Step handles one event at the time now and appends the effects that it causes to out. Step panics if now is before
// the time of an earlier step.
func (r *Rank) Step(now effects.Time, ev effects.Event, out *effects.Effects) {
	if now < r.now {
		panic("BUG: the driver's clock ran backwards")
	}
	r.now = now
	e := &r.env
	if e.Pools == nil { // true at the first step of a rank and of a clone
		r.enter()
	}
	e.Now, e.Out, e.Draining = now, out, r.draining
	r.work.Begin(int(r.cfg.Tuning.SweepRows))
	switch x := ev.(type) {
	case *effects.Tick:
	case *effects.Command:
		r.onCommand(e, x)
	case *effects.Received:
		r.onReceived(e, x)
	case *effects.ConnLost:
		r.onConnLost(e, x)
	case *effects.LinkLost:
		r.onLinkLost(e, x)
	case *effects.Landed:
		if ref := e.Pools.Owner(x.Grant); lands(ref.Owner) {
			r.owner(ref.Owner).Step(e, ref, x)
		} else {
			landing.Unknown(&e.Env, x)
		}
	case *effects.Revoked:
		if ref := e.Pools.Owner(x.Grant); ref.Owner != kernel.OwnerNone { // otherwise the reader ended the lease itself
			r.owner(ref.Owner).Step(e, ref, x)
		}
	case effects.Completion:
		ref := r.ownerOf(x.Completes())
		r.owner(ref.Owner).Step(e, ref, x)
	case *effects.Dropped:
		// The link was already removed when the drop was requested.
	}
	r.settle(e)
}

// lands reports whether peers store into pages under write grants of this owner.
func lands(of kernel.Owner) bool {
	return of == kernel.OwnerPushTarget || of == kernel.OwnerP2PTarget || of == kernel.OwnerConsumer
}

// enter fills in the parts of the environment that are the same in each step.
func (r *Rank) enter() {
	r.env = flow.Env{
		Env: env.Env{
			Pools: &r.pools, Pool: r.pools.Pool(0), Timers: &r.timers, Corrs: &r.corrs, Conns: &r.conns,
			Tickets: &r.tickets, Names: linkFlow{&r.links}, Work: &r.work,
		},
		Carrier: &r.pushSource,
		Cfg:     &r.shared, Commands: &r.commands, Links: &r.links, Breakers: &r.breakers, Rooms: &r.rooms,
	}
	switch {
	case r.cfg.landsApart():
		r.env.Landing = r.pools.Pool(placeOfDevice)
	case r.cfg.stagesApart():
		r.env.Staging = r.pools.Pool(placeOfDevice)
	}
	if r.cfg.ArenaPages > 0 {
		r.env.Arena = r.pools.Pool(HostPool)
	}
}

// ownerOf returns the owner of an effect that has been completed. The record of the effect is removed only if final is
// true; otherwise another completion follows, and the effect may still touch pages until then. ownerOf panics if there
// is no such effect, because a driver that completes an effect twice is broken.
func (r *Rank) ownerOf(c effects.Corr, final bool) kernel.Ref {
	find := r.corrs.Peek
	if final {
		find = r.corrs.Close
	}
	ref, ok := find(c)
	if !ok {
		panic("BUG: an effect was completed twice, or never asked for")
	}
	return ref
}
