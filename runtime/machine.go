package runtime

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
)

// machineConfig translates a node's configuration into its machine's, without the planes.
func machineConfig(cfg *config.Config, index int, localID string) rank.Config {
	c := rank.Config{
		LocalID: localID,
		Layout:  cfg.Layout,
		Pages:   cfg.Pages,
		Proxy:   effects.Addr{Host: cfg.Proxy.Host, Port: cfg.Proxy.Port},
		Rank:    uint32(index),

		Pull:       cfg.Pull.Enabled,
		HostPages:  cfg.HostPages,
		PullTTL:    nanos(cfg.Pull.TTL),
		ReservePPM: cfg.Pull.ReservePPM,
		LoanMax:    nanos(cfg.Pull.LoanMax),

		Delay:         cfg.Pull.Enabled && cfg.Pull.Delay && cfg.Role == config.Receiver,
		AddressesOnly: !cfg.Link.PeerNames,
		StagingPages:  cfg.StagingPages,
		ReadTimeout:   nanos(cfg.Pull.ReadTimeout),
		FetchTimeout:  nanos(cfg.Pull.FetchTimeout),
		LeadMin:       nanos(cfg.Pull.LeadMin),

		ReplyForm: cfg.Push.ReplyForm,

		PutTimeout:     nanos(cfg.Push.PutTimeout),
		ReserveTimeout: nanos(cfg.Push.PutTimeout),
		AllocTimeout:   nanos(cfg.Push.AllocTimeout),
		ReplyTimeout:   nanos(cfg.Link.RequestTimeout),
		Lease:          nanos(cfg.Push.Lease),
		LeaseGuard:     nanos(cfg.Push.LeaseGuard),
		ClaimTTL:       nanos(cfg.Push.Retention),
		RequestTTL:     nanos(cfg.Push.RequestTTL),
		AbandonTTL:     nanos(cfg.Push.AbandonTTL),
		DriftPPM:       cfg.Push.ClockDriftPPM,
		BackoffMin:     nanos(cfg.Link.BackoffMin),
		BackoffMax:     nanos(cfg.Link.BackoffMax),
		UnfitBackoff:   nanos(cfg.Link.UnfitBackoff),
		BreakerTTL:     nanos(cfg.Push.AllocFailBackoff),
		GetWaitMax:     nanos(cfg.Push.GetTimeout),

		BatchMax:     uint32(cfg.Limits.ArrayLen),
		PutsMax:      cfg.Bounds.Commands,
		ReservesMax:  cfg.Bounds.Commands,
		GetsMax:      cfg.Bounds.Commands,
		FetchesMax:   cfg.Bounds.Commands,
		PeersMax:     cfg.Bounds.Peers,
		Window:       uint16(cfg.Link.Window),
		WaitersMax:   cfg.Bounds.Waiters,
		WaitingBytes: cfg.Bounds.WaitingBytes,
		RequestIDMax: cfg.Bounds.RequestBytes,
		PeerSharePct: cfg.Push.PeerShareBP / 100, // Whole: options.check refused the rest.
		Wire:         cfg.Limits,
	}
	if cfg.Pull.ReservePPM == 0 {
		c.ReservePPM = rank.ReserveNone // A zero there is the default.
	}
	if done, ok := cfg.DoneEndpoint(index); ok {
		c.DoneAddr = effects.Addr(done)
	}
	// A machine wants ReplyTimeout to be longer than AllocTimeout. In one node only one of them is of use, the
	// other one is the peers'; config.Compare compares them. What is of use stays as it was configured.
	switch cfg.Role {
	case config.Sender:
		c.Role = rank.RoleSender
		c.AllocTimeout = min(c.AllocTimeout, c.ReplyTimeout-1)
	case config.Receiver:
		c.Role = rank.RoleReceiver
		if cfg.Push.Cache {
			c.Retention = store.Cache
		}
		c.ReplyTimeout = max(c.ReplyTimeout, c.AllocTimeout+1)
	}
	return c
}

func nanos(d time.Duration) effects.Duration { return effects.Duration(d.Nanoseconds()) }

// serversOf says what a node serves: a receiver its handshakes and allocations; a sender of pull mode where it is told
// what was read, and its handshake port if it has one; another sender nothing.
func serversOf(cfg *config.Config, index int) (servers []control.Server, err error) {
	add := func(channel effects.Channel, at protocol.Endpoint, served bool, key string) {
		if !served && err == nil {
			err = wrong("open", "WithRank", strconv.Itoa(index), upTo(0, cfg.Ranks()-1),
				fmt.Sprintf("rank %d has no port in %s: add its own, or start fewer", index, key))
		}
		servers = append(servers, control.Server{Channel: channel, Addr: effects.Addr(at)})
	}
	hello, hasHello := cfg.InitEndpoint(index)
	switch {
	case cfg.Role == config.Receiver:
		add(effects.ChannelInit, hello, hasHello, "pd_peer_init_port")
		alloc, hasAlloc := cfg.AllocEndpoint(index)
		add(effects.ChannelAlloc, alloc, hasAlloc, "pd_peer_alloc_port")
	case cfg.Pull.Enabled:
		if len(cfg.InitPorts) > 0 {
			add(effects.ChannelInit, hello, hasHello, "pd_peer_init_port")
		}
		done, hasDone := cfg.DoneEndpoint(index)
		add(effects.ChannelDone, done, hasDone, "pd_pull_done_port")
	}
	if err != nil {
		return nil, err
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
