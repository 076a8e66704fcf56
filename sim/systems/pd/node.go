package pd

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Side is what is known of a node because its machine is a rank: by what configuration it runs, and the names that it
// and its peers have for each other. All of it is of one life, and never changes in it: copies of a world share it.
type Side struct {
	Cfg         rank.Config
	Incarnation effects.Incarnation
	Key         identity.Key
	names       []effects.Incarnation // that it has for other nodes, by number, once they were asked for

	// callers has the names that it has for who called it, by theirs, once they were asked for.
	callers map[effects.Incarnation]effects.Incarnation
}

// Its is what is known of the present life of a node.
func Its(n *world.Node) *Side { return n.Side.(*Side) }

// Where ranks listen.
//
//kvferry:table
var (
	receiversPorts = []effects.Channel{effects.ChannelInit, effects.ChannelAlloc}
	pulledsPorts   = []effects.Channel{effects.ChannelInit, effects.ChannelDone} // of senders that are read from
	ClosedPorts    = pulledsPorts                                                // where noise comes to other senders
	allPorts       = []effects.Channel{effects.ChannelInit, effects.ChannelAlloc, effects.ChannelDone}
)

// PortsOf are the channels on which n listens, but for those of other flows.
func PortsOf(n *world.Node) []effects.Channel {
	switch {
	case n.Receives() && n.Pulls:
		return allPorts
	case n.Receives():
		return receiversPorts
	case n.Pulls:
		return pulledsPorts
	}
	return nil
}

// castRank has a node send or receive, as the plan says.
func (w *Cluster) castRank(p *plan.Plan, n *world.Node) {
	n.Facets = 0
	if p.Receives(plan.Node(n.ID)) {
		n.Facets |= world.FacetReceives
	}
	if p.Sends(plan.Node(n.ID)) {
		n.Facets |= world.FacetSends
	}
	n.Pulls = slices.Contains(p.Topology.Pull, plan.Node(n.ID))
	n.Delays = slices.Contains(p.Topology.Delay, plan.Node(n.ID))
	n.Caches = slices.Contains(p.Topology.Cache, plan.Node(n.ID))
	for _, f := range w.Flows {
		if f.Cast != nil {
			f.Cast(p, n)
		}
	}
}

// newRank gives n the rank of a new life, in the memory of the one that it had before, and says what memory that life
// has.
func (w *Cluster) newRank(n *world.Node) (world.Pools, error) {
	cfg := w.Plan.Rank
	cfg.Pages = w.Plan.ReceiverPages
	if n.Receives() {
		cfg.Role = rank.RoleReceiver
	} else {
		cfg.Pages = w.Plan.SenderPages
	}
	if cfg.Delay = n.Delays; n.Delays {
		cfg.StagingPages = min(w.Source.Bounds.Staging, cfg.Pages)
	}
	if int(n.ID) < len(w.Source.Topology.Windows) {
		cfg.Window = uint16(w.Source.Topology.Windows[n.ID])
	}
	if cfg.Carries > 0 && draw.Hash(w.Seed, draw.Identity, uint64(n.ID), 1<<32).Permille(200) {
		cfg.Carries /= 2 // What both ends have is the less.
	}
	if n.Caches {
		cfg.Retention = store.Cache
	}
	if n.Sends() {
		cfg.Role, cfg.Proxy, cfg.Rank = cfg.Role|rank.RoleSender, effects.Addr{Host: w.ProxyHost, Port: 1}, uint32(n.ID)
		if w.Plan.Mismatch && n.ID == 0 {
			cfg.Layout = otherLayout(draw.Hash(w.Seed, draw.Identity, 0, 0))
		}
	}
	if n.Pulls {
		cfg.Pull = true
		cfg.DoneAddr, cfg.RenewAddr = n.Addr(effects.ChannelDone), n.Addr(effects.ChannelInit)
		if n.Moved = n.Life%2 == 0 && slices.Contains(w.Source.Topology.Moves, plan.Node(n.ID)); n.Moved {
			cfg.DoneAddr = world.SecondOf(n.ID, effects.ChannelDone)
			cfg.RenewAddr = world.SecondOf(n.ID, effects.ChannelInit)
		}
		if slices.Contains(w.Source.Topology.Unrenewed, plan.Node(n.ID)) {
			cfg.RenewAddr = effects.Addr{}
		}
	}
	for _, f := range w.Flows {
		if f.Boot != nil {
			f.Boot(w.Source, n, &cfg)
		}
	}
	me := n.Addr(effects.ChannelInit)
	cfg.LocalID = protocol.JoinedID(me.Host, me.Port)
	cfg.Planes = []rank.Plane{{Name: "sim", Blob: []byte{byte(n.ID), byte(n.Life)}}}
	seed := uint64(draw.Hash(w.Seed, draw.Identity, uint64(n.ID), uint64(n.Life)))
	cfg.Key = identity.KeyOf(seed)
	former, ok := n.Machine.(*rank.Rank)
	if !ok {
		former = new(rank.Rank)
	}
	machine, err := rank.Renew(former, cfg, seed, w.Clock(n))
	if err != nil {
		return world.Pools{}, err
	}
	n.Machine, n.Listens = machine, PortsOf(n)
	if w.Flows.Alone() {
		n.Listens = receiversPorts[:1] // Hellos.
	}
	for _, f := range w.Flows {
		if f.Ports != nil {
			n.Listens = slices.Concat(n.Listens, f.Ports(n))
		}
	}
	n.Side = &Side{Cfg: cfg, Incarnation: machine.Incarnation(), Key: cfg.Key,
		callers: map[effects.Incarnation]effects.Incarnation{}}
	size, err := cfg.Layout.PageBytes()
	reads := cfg.PullTTL
	if n.Lends {
		reads = cfg.Lease // What is asked for is read at once.
	}
	writes := cfg.Lease
	if cfg.Geometry != nil { // A registration stands until it is answered.
		writes = cfg.RegisterTimeout + cfg.LeaseGuard
	}
	second, _, _ := machine.Device()
	return world.Pools{Pages: cfg.Pages, Arena: cfg.ArenaPages,
		Second: cfg.DevicePages, SecondBuffer: second, PageBytes: uint32(size),
		Leased: cfg.Leased, Writes: writes, Reads: reads, Buffer: BufferOf(n)}, err
}

// IsNameOf says whether a name is one that this life of n has for anybody.
func IsNameOf(n *world.Node, name effects.Incarnation) bool {
	return identity.OneLife(name, Its(n).Incarnation)
}

// invited says whether n's machine gave this token to the peer of that name, to whom n is us.
func invited(n *world.Node, peer, us effects.Incarnation, token []byte) bool {
	want := Its(n).Key.Token("sim", peer, us)
	return bytes.Equal(token, want[:])
}
