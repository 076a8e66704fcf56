package sim

import (
	"bytes"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// pd is what is known of a node because its machine is a rank: by what configuration it runs, and the names that it
// and its peers have for each other. All of it is of one life.
type pd struct {
	cfg         rank.Config           `snap:"share"`
	incarnation effects.Incarnation   `snap:"skip"`
	key         identity.Key          `snap:"skip"`
	names       []effects.Incarnation `snap:"skip"` // that it has for other nodes, by number, once they were asked for

	// callers has the names that it has for who called it, by theirs, once they were asked for.
	callers map[effects.Incarnation]effects.Incarnation `snap:"scratch"`
}

// Where ranks listen.
//
//kvferry:table
var (
	receiversPorts = []effects.Channel{effects.ChannelInit, effects.ChannelAlloc}
	recalledsPorts = []effects.Channel{effects.ChannelInit, effects.ChannelAlloc, effects.ChannelQuery}
	pulledsPorts   = []effects.Channel{effects.ChannelInit, effects.ChannelDone} // of senders that are read from
	closedPorts    = pulledsPorts                                                // where noise comes to other senders
	allPorts       = []effects.Channel{effects.ChannelInit, effects.ChannelAlloc, effects.ChannelDone}
)

// ports are the channels on which n listens.
func (n *node) ports() []effects.Channel {
	switch {
	case n.receives() && n.pulls:
		return allPorts
	case n.lends:
		return recalledsPorts
	case n.receives():
		return receiversPorts
	case n.pulls:
		return pulledsPorts
	}
	return nil
}

// castRank has a node send or receive, as the plan says.
func castRank(p *plan.Plan, n *node) {
	n.facets = 0
	if p.Receives(plan.Node(n.id)) {
		n.facets |= facetReceives
	}
	if p.Sends(plan.Node(n.id)) {
		n.facets |= facetSends
	}
	n.pulls = slices.Contains(p.Topology.Pull, plan.Node(n.id))
	n.delays = slices.Contains(p.Topology.Delay, plan.Node(n.id))
	n.lends = p.Topology.Recall && n.receives()
	n.caches = slices.Contains(p.Topology.Cache, plan.Node(n.id))
}

// newRank gives n the rank of a new life, and says what memory that life has.
func (w *world) newRank(n *node) (pools, error) {
	cfg := w.plan.Rank
	cfg.Pages = w.plan.ReceiverPages
	if n.receives() {
		cfg.Role = rank.RoleReceiver
	} else {
		cfg.Pages = w.plan.SenderPages
	}
	if cfg.Delay = n.delays; n.delays {
		cfg.StagingPages = min(w.source.Bounds.Staging, cfg.Pages)
	}
	if int(n.id) < len(w.source.Topology.Windows) {
		cfg.Window = uint16(w.source.Topology.Windows[n.id])
	}
	if n.caches {
		cfg.Retention = store.Cache
	}
	if n.sends() {
		cfg.Role, cfg.Proxy, cfg.Rank = cfg.Role|rank.RoleSender, effects.Addr{Host: w.proxyHost, Port: 1}, uint32(n.id)
		if w.plan.Mismatch && n.id == 0 {
			cfg.Layout = otherLayout(draw.Hash(w.seed, draw.Identity, 0, 0))
		}
	}
	if n.pulls {
		cfg.Pull, cfg.DoneAddr = true, n.addr(effects.ChannelDone)
		cfg.HostPages = w.source.Topology.HostPages
		cfg.RenewAddr = n.addr(effects.ChannelInit)
	}
	me := n.addr(effects.ChannelInit)
	cfg.LocalID = protocol.JoinedID(me.Host, me.Port)
	cfg.Planes = []rank.Plane{{Name: "sim", Blob: []byte{byte(n.id), byte(n.life)}}}
	seed := uint64(draw.Hash(w.seed, draw.Identity, uint64(n.id), uint64(n.life)))
	cfg.Key = identity.KeyOf(seed)
	machine, err := rank.New(cfg, seed, w.clock(n))
	if err != nil {
		return pools{}, err
	}
	n.machine, n.cfg, n.listens = machine, cfg, n.ports()
	n.incarnation, n.key, n.names = machine.Incarnation(), cfg.Key, n.names[:0]
	n.callers = emptied(n.callers)
	size, err := cfg.Layout.PageBytes()
	reads := cfg.PullTTL
	if n.lends {
		reads = cfg.Lease // What is recalled is read at once.
	}
	return pools{pages: cfg.Pages, hostPages: cfg.HostPages, host: rank.HostPool, pageBytes: uint32(size),
		leased: cfg.Leased, writes: cfg.Lease, reads: reads, buffer: n.buffer()}, err
}

// is says whether a name is one that this life of n has for anybody.
func (n *node) is(name effects.Incarnation) bool { return identity.OneLife(name, n.incarnation) }

// invited says whether n's machine gave this token to the peer of that name, to whom n is us.
func (n *node) invited(peer, us effects.Incarnation, token []byte) bool {
	want := n.key.Token("sim", peer, us)
	return bytes.Equal(token, want[:])
}
