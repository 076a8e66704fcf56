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

// Side holds what the simulator knows about a node whose machine is a rank: the configuration, and the names that the
// node and the peers use for each other. The facts are about an incarnation and never change, except that names are
// computed on first use. Copies of a world share the facts.
type Side struct {
	Cfg         rank.Config
	Incarnation effects.Incarnation
	Key         identity.Key
	// names by which this incarnation introduces itself to the nodes that it calls, by node number, computed on first
	// use
	names []effects.Incarnation

	// callers maps the name of each caller to the name that this incarnation uses towards that caller, computed on
	// first use.
	callers map[effects.Incarnation]effects.Incarnation
}

// Its returns the facts about the present incarnation of a node.
func Its(n *world.Node) *Side { return n.Side.(*Side) }

// The channels on which ranks listen.
//
//kvferry:table
var (
	receiversPorts = []effects.Channel{effects.ChannelInit, effects.ChannelAlloc}
	// for senders whose chunks are read (pull)
	pulledsPorts = []effects.Channel{effects.ChannelInit, effects.ChannelDone}
	allPorts     = []effects.Channel{effects.ChannelInit, effects.ChannelAlloc, effects.ChannelDone}
)

// PortsOf returns the channels on which n listens, except the channels of flows.
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

// Cast makes a node send, receive, or do both, as the plan says.
func (w *Cluster) Cast(n *world.Node) {
	p := w.Source
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

// Boot gives n the rank of a new incarnation, in the memory of the previous one, and returns the memory pools of
// the new incarnation.
func (w *Cluster) Boot(n *world.Node) (world.Pools, error) {
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
		cfg.Carries /= 2 // The smaller of both ends' limits applies.
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
	cfg.Key = identity.KeyFromSeed(seed)
	former, ok := n.Machine.(*rank.Rank)
	if !ok {
		former = new(rank.Rank)
	}
	machine, err := rank.Recycle(former, cfg, seed, w.Clock(n))
	if err != nil {
		return world.Pools{}, err
	}
	n.Machine, n.Listens = machine, PortsOf(n)
	if w.Flows.Alone() != nil {
		n.Listens = receiversPorts[:1] // Only the channel for handshakes.
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
		reads = cfg.Lease // A requested page is read at once.
	}
	writes := cfg.Lease
	if cfg.Geometry != nil { // A registration is valid until it is answered.
		writes = cfg.RegisterTimeout + cfg.LeaseGuard
	}
	second, _, _ := machine.Device()
	return world.Pools{Pages: cfg.Pages, Arena: cfg.ArenaPages,
		Second: cfg.DevicePages, SecondBuffer: second, PageBytes: uint32(size),
		Leased: cfg.Leased, Writes: writes, Reads: reads, Buffer: BufferOf(n)}, err
}

// IsNameOf reports whether name is a name that this incarnation of n uses towards some peer.
func IsNameOf(n *world.Node, name effects.Incarnation) bool {
	return identity.SameIncarnation(name, Its(n).Incarnation)
}

// Invited reports whether n's machine gave this token to the peer with the given name, where us is the name that n
// uses towards that peer.
func (w *Cluster) Invited(n *world.Node, peer, us effects.Incarnation, token []byte) bool {
	want := Its(n).Key.Token("sim", peer, us)
	return bytes.Equal(token, want[:])
}
