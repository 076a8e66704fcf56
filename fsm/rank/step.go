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
		r.initEnv()
	}
	e.Now, e.Out, e.Draining = now, out, r.draining
	r.work.StartStep(int(r.cfg.Tuning.SweepRows))
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
		if ref := e.Pools.OwnerOf(x.Grant); takesLandings(ref.Owner) {
			r.flowOf(ref.Owner).Step(e, ref, x)
		} else {
			landing.RefuseUnknown(&e.Env, x)
		}
	case *effects.Revoked:
		if ref := e.Pools.OwnerOf(x.Grant); ref.Owner != kernel.OwnerNone { // otherwise the reader ended the lease itself
			r.flowOf(ref.Owner).Step(e, ref, x)
		}
	case effects.Completion:
		ref := r.ownerOf(x.CompletedEffect())
		r.flowOf(ref.Owner).Step(e, ref, x)
	case *effects.Dropped:
		// The link was already removed when the drop was requested.
	}
	r.finishStep(e)
}

// takesLandings reports whether peers store into pages under write grants of this owner.
func takesLandings(owner kernel.Owner) bool {
	return owner == kernel.OwnerPushTarget || owner == kernel.OwnerP2PTarget || owner == kernel.OwnerConsumer
}

// initEnv fills in the parts of the environment that are the same in each step.
func (r *Rank) initEnv() {
	r.env = flow.Env{
		Env: env.Env{
			Pools: &r.pools, Pool: r.pools.Pool(0), Timers: &r.timers, Corrs: &r.corrs, Conns: &r.conns,
			Tickets: &r.tickets, Peers: linkFlow{&r.links}, Work: &r.work,
		},
		Carrier: &r.pushSource,
		Cfg:     &r.flowConfig, Commands: &r.commands, Links: &r.links, Breakers: &r.breakers, Rooms: &r.sharedRooms,
	}
	switch {
	case r.cfg.landsOnDevice():
		r.env.Landing = r.pools.Pool(devicePoolIndex)
	case r.cfg.stagesOnDevice():
		r.env.Staging = r.pools.Pool(devicePoolIndex)
	}
	if r.cfg.ArenaPages > 0 {
		r.env.Arena = r.pools.Pool(ArenaPool)
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
