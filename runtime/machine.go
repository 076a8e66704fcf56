package runtime

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
)

// machine is a rank's, as a node uses it: an interface, so that who knows nodes compiles none of the machine's tables.
type machine interface {
	effects.Machine
	Incarnation() effects.Incarnation
	Stats() rank.Stats
	PutFits(keys [][]byte) int
	RecallFits(request []byte, keys [][]byte) int
	BringFits(request []byte, keys [][]byte, mode p2p.Mode) int
}

// machineConfig translates a node's configuration into its machine's, without the planes: each part by itself.
func machineConfig(cfg *config.Config, index int, localID string) rank.Config {
	c := rank.Config{
		Common: machineCommon(cfg), Memory: machineMemory(cfg), Peers: machinePeers(cfg, localID),
		Engine: machineEngine(cfg, index), Offering: machineOffering(cfg, index),

		Store:    rank.Store{ClaimTTL: nanos(cfg.Push.Retention)},
		Pending:  rank.Pending{WaitersMax: cfg.Bounds.Waiters, WaitingBytes: cfg.Bounds.WaitingBytes},
		Deferred: rank.Deferred{LeadMin: nanos(cfg.Pull.LeadMin), FetchTimeout: nanos(cfg.Pull.FetchTimeout)},
		Pipeline: rank.Pipeline{StagingPages: cfg.StagingPages, FetchesMax: cfg.Bounds.Commands},
		Recalling: rank.Recalling{
			Recalls: cfg.Recall.Enabled, RecallTimeout: nanos(cfg.Recall.Timeout), RecallsMax: cfg.Recall.Max,
		},
		Granting: rank.Granting{ReplyForm: cfg.Push.ReplyForm},
		Reading: rank.Reading{
			Delay:         cfg.Pull.Enabled && cfg.Pull.Delay && cfg.Role.Receives(),
			AddressesOnly: !cfg.Link.PeerNames,
			ReadTimeout:   nanos(cfg.Pull.ReadTimeout),
		},
		Tuning: rank.Tuning{SweepRows: cfg.Bounds.RowsPerStep},
	}
	// A machine wants ReplyTimeout to be longer than AllocTimeout. In a node of one side only one of them is of use, the
	// other one is the peers'; config.Compare compares them. What is of use stays as it was configured; where both are,
	// config has checked them.
	switch cfg.Role {
	case config.Sender:
		c.Role = rank.RoleSender
		c.AllocTimeout = min(c.AllocTimeout, c.ReplyTimeout-1)
	case config.Receiver:
		c.Role = rank.RoleReceiver
		c.ReplyTimeout = max(c.ReplyTimeout, c.AllocTimeout+1)
	case config.Both:
		c.Role = rank.RoleBoth
	}
	if cfg.Role.Receives() && cfg.Push.Cache {
		c.Retention = store.Cache
	}
	layersOf(&c, &cfg.Layerwise)
	shareOf(&c, cfg, index)
	registerOf(&c, cfg, index)
	return c
}

// layersOf translates what a configuration says of layerwise push.
func layersOf(c *rank.Config, l *config.Layerwise) {
	if !l.Enabled {
		return
	}
	c.Bundling = rank.Bundling{
		Layers: l.Layers, WholeChunks: l.WholeChunks, BundlesMax: l.Bundles, BundleTTL: nanos(l.BundleTTL),
		BundleMost: nanos(l.BundleMax),
	}
	c.Layerwise = rank.Layerwise{
		RunsMax: l.Runs, SavesMax: l.Saves, ChunksMax: l.Chunks, BatchesMax: l.Batches, RunTTL: nanos(l.RunTTL),
		MergeBytes: l.MergeBytes,
	}
}

func machineCommon(cfg *config.Config) rank.Common {
	return rank.Common{
		Layout:       cfg.Layout,
		AllocTimeout: nanos(cfg.Push.AllocTimeout),
		ReplyTimeout: nanos(cfg.Link.RequestTimeout),
		Lease:        nanos(cfg.Push.Lease),
		LeaseGuard:   nanos(cfg.Push.LeaseGuard),
		ReadLeaseMax: nanos(cfg.Pull.LoanMax),
		BackoffMin:   nanos(cfg.Link.BackoffMin),
		BackoffMax:   nanos(cfg.Link.BackoffMax),
		BatchMax:     uint32(cfg.Limits.ArrayLen),
		Window:       uint16(cfg.Link.Window),
		Carries:      carries(cfg),
		Wire:         cfg.Limits,
	}
}

// carries is how many bytes of chunks may come with a request for their pages. The driver copies them itself, so of
// pages in a device there are none.
func carries(cfg *config.Config) uint32 {
	if cfg.NeedsNPU() {
		return 0
	}
	return uint32(min(cfg.Link.CarryBytes, uint64(cfg.Limits.MessageBytes/2)))
}

func machineMemory(cfg *config.Config) rank.Memory {
	return rank.Memory{
		Pages: cfg.Pages, PoolKey: cfg.PoolKey(),
		// Whole: options.check refused the rest.
		PeerSharePct: cfg.Push.PeerShareBP / 100, EngineSharePct: cfg.Push.EngineShareBP / 100,
	}
}

func machinePeers(cfg *config.Config, localID string) rank.Peers {
	return rank.Peers{
		LocalID:      localID,
		DriftPPM:     cfg.Push.ClockDriftPPM,
		UnfitBackoff: nanos(cfg.Link.UnfitBackoff),
		BreakerTTL:   nanos(cfg.Push.AllocFailBackoff),
		PeersMax:     cfg.Bounds.Peers,
	}
}

func machineEngine(cfg *config.Config, index int) rank.Engine {
	return rank.Engine{
		Proxy:          effects.Addr{Host: cfg.Proxy.Host, Port: cfg.Proxy.Port},
		Rank:           uint32(index),
		PutTimeout:     nanos(cfg.Push.PutTimeout),
		ReserveTimeout: nanos(cfg.Push.PutTimeout),
		RequestTTL:     nanos(cfg.Push.RequestTTL),
		AbandonTTL:     nanos(cfg.Push.AbandonTTL),
		GetWaitMax:     nanos(cfg.Push.GetTimeout),
		PutsMax:        cfg.Bounds.Commands,
		ReservesMax:    cfg.Bounds.Commands,
		GetsMax:        cfg.Bounds.Commands,
		RequestIDMax:   cfg.Bounds.RequestBytes,
	}
}

func machineOffering(cfg *config.Config, index int) rank.Offering {
	o := rank.Offering{Pull: cfg.Pull.Enabled, PullTTL: nanos(cfg.Pull.TTL), ReservePPM: cfg.Pull.ReservePPM}
	if cfg.Pull.ReservePPM == 0 {
		o.ReservePPM = rank.ReserveNone // A zero there is the default.
	}
	if done, ok := cfg.DoneEndpoint(index); ok {
		o.DoneAddr = effects.Addr(done)
	}
	return o
}

func nanos(d time.Duration) effects.Duration { return effects.Duration(d.Nanoseconds()) }

// serversOf says what a node serves: whoever receives its handshakes and allocations; a sender of pull mode where it is
// told what was read, and its handshake port if it has one, for renewals; another sender nothing. Whoever receives
// and may be recalled from serves its query port beside. One whose blocks are registered takes registrations where
// others take allocations.
func serversOf(cfg *config.Config, index int) ([]control.Server, error) {
	receives, lends := cfg.Role.Receives(), cfg.Role.Sends() && cfg.Pull.Enabled
	var servers []control.Server
	for _, s := range []struct {
		channel effects.Channel
		key     string
		at      func(index int) (protocol.Endpoint, bool)
		serves  bool
	}{
		{effects.ChannelInit, "pd_peer_init_port", cfg.InitEndpoint, receives || lends && len(cfg.InitPorts) > 0},
		{effects.ChannelAlloc, "pd_peer_alloc_port", cfg.AllocEndpoint, receives && !cfg.Share.Only && !cfg.Register.Enabled},
		{effects.ChannelRegister, "pd_peer_alloc_port", cfg.AllocEndpoint, cfg.Register.Enabled},
		{effects.ChannelLookup, "p2p_lookup_ports", cfg.LookupEndpoint, cfg.Share.Enabled},
		{effects.ChannelDone, "pd_pull_done_port", cfg.DoneEndpoint, lends},
		{effects.ChannelQuery, "pd_peer_query_port", cfg.QueryEndpoint, receives && cfg.Recall.Enabled},
	} {
		if !s.serves {
			continue
		}
		at, served := s.at(index)
		if !served {
			return nil, wrong("open", "WithRank", strconv.Itoa(index), upTo(0, cfg.Ranks()-1),
				fmt.Sprintf("rank %d has no port in %s: add its own, or start fewer", index, s.key))
		}
		servers = append(servers, control.Server{Channel: s.channel, Addr: effects.Addr(at)})
	}
	if cfg.Share.Enabled { // Peers ask where it is.
		servers = append(servers, control.Server{Channel: effects.ChannelPeerDone, Addr: effects.Addr{Host: cfg.PeerHost}})
	}
	return servers, nil
}

// boundAt is where a channel is served, with the port that was really bound; zero if nowhere.
func boundAt(servers []control.Server, channel effects.Channel) effects.Addr {
	for _, s := range servers {
		if s.Channel == channel {
			return s.Addr
		}
	}
	return effects.Addr{}
}
