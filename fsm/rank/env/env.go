// Package env defines what the rooms of a rank share during one step: the instant, the effects that the step emits, and
// the tables that belong to all rooms.
//
// The rank updates its [Env] at the beginning of a step and passes the Env by argument. A room may rely on Now staying
// the same during the whole step, and must not store the Env or a pointer out of the Env beyond the step.
//
// Example: a deadline of the push source expires. The rank calls the push source with the Env. The push source finds
// its row, opens a correlation number in Corrs, adds a message to Out, and sets the next deadline in Timers at Now plus
// the timeout. All three are in the Env, so the push source needs no pointer to the rank.
package env

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
)

// Env is the environment of a step: the instant, the effects, and the shared tables.
type Env struct {
	Now   effects.Time
	Out   *effects.Effects
	Pools *memory.Pools
	Pool  *memory.Pool // the pool that peers store into and read; also the engine's pool if Engine is nil
	// Engine is the pool that the engine fills, if that is not Pool. It is set only in the Env that ForArena returns,
	// where Pool is the arena.
	Engine *memory.Pool
	// Arena is the pool to which ready chunks are copied for peers to read. Arena is nil if the rank has none.
	Arena   *memory.Pool
	Landing *memory.Pool // the pool in which chunks shared by peers land; nil: Pool
	Staging *memory.Pool // the pool into which fetches read; nil: Pool
	Timers  *kernel.Timers
	Corrs   *kernel.Corrs
	Conns   *kernel.Conns
	Tickets *kernel.Tickets    // tickets of open commands
	Peers   PeerInfo           // may be nil
	Work    *kernel.WorkBudget // the budget of this step for work that can wait for the next step; nil: unlimited
}

// PeerInfo gives the names of peers, for texts that people read, and says of which tenants peers may be told and which
// data-plane links exist.
type PeerInfo interface {
	// PeerName returns the name of the inbound peer of a class, or "" if the class has no peer.
	PeerName(class int) string
	// HasTenant reports whether the inbound peer of a class may be told of chunks of a tenant.
	HasTenant(class int, tenant effects.Tenant) bool
	// RealmOf returns the trust domain of the inbound peer of a class.
	RealmOf(class int) effects.Realm
	// HasLink reports whether the link exists and leads to a peer.
	HasLink(link effects.Link) bool
}

// HasLink reports whether the link exists, as far as the rank knows. A link that was dropped must not be used for
// reads. Without Peers, HasLink reports true.
func (v *Env) HasLink(link effects.Link) bool { return v.Peers == nil || v.Peers.HasLink(link) }

// HasTenant reports whether the inbound peer of a class may be told of chunks of a tenant. Without Peers, HasTenant
// reports true.
func (v *Env) HasTenant(class int, tenant effects.Tenant) bool {
	return v.Peers == nil || v.Peers.HasTenant(class, tenant)
}

// RealmOf returns the trust domain of the inbound peer of a class. It is the domain of this node if there is no such
// peer, or without Peers.
func (v *Env) RealmOf(class int) effects.Realm {
	if v.Peers == nil {
		return 0
	}
	return v.Peers.RealmOf(class)
}

// PeerName returns the name of the inbound peer of a class, or "" if the name is not known.
func (v *Env) PeerName(class int) string {
	if v.Peers == nil {
		return ""
	}
	return v.Peers.PeerName(class)
}

// ForArena returns a copy of v for the code that copies chunks to the arena and lends the copies from there: Pool is
// the arena, and Engine is the former Pool.
func (v *Env) ForArena() Env {
	a := *v
	a.Pool, a.Engine = v.Arena, v.Pool
	return a
}

// LandingPool returns the pool in which chunks shared by peers land.
func (v *Env) LandingPool() *memory.Pool {
	if v.Landing != nil {
		return v.Landing
	}
	return v.Pool
}

// StagingPool returns the pool into which fetches read.
func (v *Env) StagingPool() *memory.Pool {
	if v.Staging != nil {
		return v.Staging
	}
	return v.Pool
}

// EnginePool returns the pool whose pages the engine reserves and puts.
func (v *Env) EnginePool() *memory.Pool {
	if v.Engine != nil {
		return v.Engine
	}
	return v.Pool
}
