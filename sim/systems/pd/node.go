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

// RankInfo holds what the simulator knows about a node whose machine is a rank: the configuration, and the names that
// the node and the peers use for each other. The facts are about an incarnation and never change, except that names are
// computed on first use. Copies of a world share the facts.
type RankInfo struct {
	Cfg         rank.Config
	Incarnation effects.Incarnation
	Key         identity.Key
	seed        uint64       // the machine's seed
	startedAt   effects.Time // when the machine was made
	// calleeNames by which this incarnation introduces itself to the nodes that it calls, by node number, computed on
	// first use
	calleeNames []effects.Incarnation

	// provenNames are the names under which peers shook hands with this incarnation, where peers prove identities
	provenNames []provenName

	// callerNames maps the name of each caller to the name that this incarnation uses towards that caller, computed on
	// first use.
	callerNames map[effects.Incarnation]effects.Incarnation

	shareChanges bool // the share of a tenant changes, or has changed, in this incarnation
}

// InfoOf returns the facts about the present incarnation of a node.
func InfoOf(n *world.Node) *RankInfo { return n.State.(*RankInfo) }

// The channels on which ranks listen.
//
//kvferry:table
var (
	receiverChannels = []effects.Channel{effects.ChannelInit, effects.ChannelAlloc}
	// for senders whose chunks are read (pull)
	pullSenderChannels = []effects.Channel{effects.ChannelInit, effects.ChannelDone}
	allChannels        = []effects.Channel{effects.ChannelInit, effects.ChannelAlloc, effects.ChannelDone}
)

// ChannelsOf returns the channels on which n listens, except the channels of flows.
func ChannelsOf(n *world.Node) []effects.Channel {
	switch {
	case n.IsReceiver() && n.OffersChunks:
		return allChannels
	case n.IsReceiver():
		return receiverChannels
	case n.OffersChunks:
		return pullSenderChannels
	}
	return nil
}

// SetRole makes a node send, receive, or do both, as the plan says.
func (w *Cluster) SetRole(n *world.Node) {
	p := w.SourcePlan
	n.Roles = 0
	if p.IsReceiver(plan.Node(n.ID)) {
		n.Roles |= world.RoleReceiver
	}
	if p.IsSender(plan.Node(n.ID)) {
		n.Roles |= world.RoleSender
	}
	n.OffersChunks = slices.Contains(p.Topology.Pull, plan.Node(n.ID))
	n.KeepsOffers = slices.Contains(p.Topology.Delay, plan.Node(n.ID))
	n.IsCache = slices.Contains(p.Topology.Cache, plan.Node(n.ID))
	n.Proof = w.proofOfNode(n)
	n.ForbiddenFrom, n.ForbiddenUntil = w.drawForbidden(n)
	for _, f := range w.Flows {
		if f.SetRole != nil {
			f.SetRole(p, n)
		}
	}
}

// BootNode gives n the rank of a new incarnation, in the memory of the previous one, and returns the memory pools of
// the new incarnation.
func (w *Cluster) BootNode(n *world.Node) (world.Pools, error) {
	cfg := w.Setup.Rank
	cfg.Pages = w.Setup.ReceiverPages
	if n.IsReceiver() {
		cfg.Role = rank.RoleReceiver
	} else {
		cfg.Pages = w.Setup.SenderPages
	}
	cfg.Tenants = w.OwnTenants(n)
	if cfg.Delay = n.KeepsOffers; n.KeepsOffers {
		cfg.StagingPages = min(w.SourcePlan.Bounds.Staging, cfg.Pages)
	}
	if int(n.ID) < len(w.SourcePlan.Topology.Windows) {
		cfg.Window = uint16(w.SourcePlan.Topology.Windows[n.ID])
	}
	if cfg.Carries > 0 && draw.Hash(w.Seed, draw.Identity, uint64(n.ID), 1<<32).ChancePermille(200) {
		cfg.Carries /= 2 // The smaller of both ends' limits applies.
	}
	if n.IsCache {
		cfg.Retention = store.Cache
	}
	if n.IsSender() {
		cfg.Role, cfg.Proxy, cfg.Rank = cfg.Role|rank.RoleSender, effects.Addr{Host: w.ProxyHost, Port: 1}, uint32(n.ID)
		if w.Setup.Mismatch && n.ID == 0 {
			cfg.Layout = mismatchedLayout(draw.Hash(w.Seed, draw.Identity, 0, 0))
		}
	}
	if n.OffersChunks {
		cfg.Pull = true
		cfg.DoneAddr, cfg.RenewAddr = n.Addr(effects.ChannelDone), n.Addr(effects.ChannelInit)
		if n.Moved = n.Incarnation%2 == 0 && slices.Contains(w.SourcePlan.Topology.Moves, plan.Node(n.ID)); n.Moved {
			cfg.DoneAddr = world.SecondAddressOf(n.ID, effects.ChannelDone)
			cfg.RenewAddr = world.SecondAddressOf(n.ID, effects.ChannelInit)
		}
		if slices.Contains(w.SourcePlan.Topology.Moves, plan.Node(n.ID)) {
			n.Roams = w.roams(n)
		}
		if slices.Contains(w.SourcePlan.Topology.Unrenewed, plan.Node(n.ID)) {
			cfg.RenewAddr = effects.Addr{}
		}
	}
	w.varyConfig(n, &cfg)
	for _, f := range w.Flows {
		if f.ConfigureNode != nil {
			f.ConfigureNode(w.SourcePlan, n, &cfg)
		}
	}
	addr := n.Addr(effects.ChannelInit)
	cfg.LocalID = protocol.JoinedID(addr.Host, addr.Port)
	cfg.Planes = []rank.Plane{{Name: "sim", Blob: []byte{byte(n.ID), byte(n.Incarnation)}}}
	seed := uint64(draw.Hash(w.Seed, draw.Identity, uint64(n.ID), uint64(n.Incarnation)))
	cfg.Key = identity.KeyFromSeed(seed)
	former, ok := n.Machine.(*rank.Rank)
	if !ok {
		former = new(rank.Rank)
	}
	start := w.ReadClock(n)
	machine, err := rank.Recycle(former, cfg, seed, start)
	if err != nil {
		return world.Pools{}, err
	}
	n.Machine, n.Listens = machine, ChannelsOf(n)
	if w.Flows.ExclusivePart() != nil {
		n.Listens = receiverChannels[:1] // Only the channel for handshakes.
	}
	for _, f := range w.Flows {
		if f.ListenChannels != nil {
			n.Listens = slices.Concat(n.Listens, f.ListenChannels(n))
		}
	}
	n.State = &RankInfo{Cfg: cfg, Incarnation: machine.Incarnation(), Key: cfg.Key, seed: seed, startedAt: start,
		callerNames: map[effects.Incarnation]effects.Incarnation{}}
	size, err := cfg.Layout.PageBytes()
	reads := cfg.PullTTL
	if n.LendsChunks {
		reads = cfg.Lease // A requested page is read at once.
	}
	if cfg.Shares {
		reads = cfg.ShareTTL
	}
	writes := cfg.Lease
	if cfg.Geometry != nil { // A registration is valid until it is answered.
		writes = cfg.RegisterTimeout + cfg.LeaseGuard
	}
	second, _, _ := machine.Device()
	return world.Pools{Pages: cfg.Pages, ArenaPages: cfg.ArenaPages,
		SecondPages: cfg.DevicePages, SecondBuffer: second, PageBytes: uint32(size),
		Leased: cfg.Leased, WriteTime: writes, ReadTime: reads, Buffer: BufferOf(n)}, err
}

// IsNameOf reports whether name is a name that this incarnation of n uses towards some peer.
func IsNameOf(n *world.Node, name effects.Incarnation) bool {
	return identity.SameIncarnation(name, InfoOf(n).Incarnation)
}

// IsInvited reports whether n's machine gave this token to the peer with the given name, where ownName is the name that
// n uses towards that peer.
func (w *Cluster) IsInvited(n *world.Node, peer, ownName effects.Incarnation, token []byte) bool {
	want := InfoOf(n).Key.Token("sim", peer, ownName)
	return bytes.Equal(token, want[:])
}
