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

// machine is a rank's machine as a node uses the machine. The interface exists so that a package that imports only the
// node's types does not compile the machine's tables.
type machine interface {
	effects.Machine
	Incarnation() effects.Incarnation
	Stats() rank.Stats
	ListUnfinished() []rank.Unfinished
	AppendHolds(to []rank.Hold) []rank.Hold
	AppendPeers(to []rank.Peer) []rank.Peer
	AppendOperations(to []rank.Operation) []rank.Operation
	PutFits(keys [][]byte) int
	RecallFits(request []byte, keys [][]byte) int
	BringFits(request []byte, keys [][]byte, mode p2p.Mode) int
}

// machineConfig returns the configuration of the machine of a rank of a node, without the planes. The result contains
// the values that the configuration file sets directly (config.Config.Machine), and values that follow from the rest
// of the file and from the rank.
func machineConfig(cfg *config.Config, index int, localID string) rank.Config {
	c := cfg.Machine
	c.Layout, c.Wire, c.BatchMax = cfg.Layout, cfg.Limits, uint32(cfg.Limits.ArrayLen)
	c.Carries, c.Verifies = carriedBytesMax(cfg), cfg.Data.Checksums
	c.Pages, c.PoolKey, c.StagingPages = cfg.Pages, cfg.PoolKey(), cfg.StagingPages
	c.LocalID, c.Rank, c.Proxy = localID, uint32(index), effects.Addr(cfg.Proxy)
	c.ReserveTimeout = c.PutTimeout
	c.PutsMax, c.ReservesMax = cfg.Bounds.Commands, cfg.Bounds.Commands
	c.GetsMax, c.FetchesMax = cfg.Bounds.Commands, cfg.Bounds.Commands
	c.Pull = cfg.Pull.Enabled
	if done, ok := cfg.DoneEndpoint(index); ok {
		c.DoneAddr = effects.Addr(done)
	}
	c.Delay = cfg.Pull.Enabled && cfg.Pull.Delay && cfg.Role.Receives()
	c.AddressesOnly = !cfg.Link.PeerNames
	// The machine requires ReplyTimeout to be longer than AllocTimeout. A node with one role uses only one of the two;
	// the peers use the second, and config.Compare compares both. The timeout in use keeps the configured value; for a
	// node with both roles, config has checked both values.
	switch cfg.Role {
	case config.Sender:
		c.Role = rank.RoleSender
		c.AllocTimeout = min(c.AllocTimeout, c.ReplyTimeout-1)
		c.Retention = store.Consume
	case config.Receiver:
		c.Role = rank.RoleReceiver
		c.ReplyTimeout = max(c.ReplyTimeout, c.AllocTimeout+1)
	case config.Both:
		c.Role = rank.RoleBoth
	}
	configureSharing(&c, cfg, index)
	c.Geometry = cfg.Geometry(index)
	return c
}

// carriedBytesMax returns how many bytes of chunks may travel with the request for their pages. The driver copies these
// chunks itself, so the value is 0 if the pages are in a device.
func carriedBytesMax(cfg *config.Config) uint32 {
	if cfg.NeedsNPU() {
		return 0
	}
	return min(cfg.Machine.Carries, uint32(cfg.Limits.MessageBytes/2))
}

// toNanos converts a duration of Go into a duration of the machine.
func toNanos(d time.Duration) effects.Duration { return effects.Duration(d.Nanoseconds()) }

// controlServers returns the channels that a node serves. A receiver serves handshakes and allocation requests. A
// sender in pull mode serves done messages, and the handshake port, if configured, for lease renewals; a sender in push
// mode serves nothing. A receiver from which chunks may be recalled also serves a query port. A node with registered
// blocks serves registrations on the port that otherwise serves allocation requests.
func controlServers(cfg *config.Config, index int) ([]control.Server, error) {
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
		{effects.ChannelQuery, "pd_peer_query_port", cfg.QueryEndpoint, receives && cfg.Machine.Recalls},
	} {
		if !s.serves {
			continue
		}
		at, served := s.at(index)
		if !served {
			return nil, argumentError("open", "WithRank", strconv.Itoa(index), formatRange(0, cfg.RankCount()-1),
				fmt.Sprintf("rank %d has no port in %s: add a port for it, or start fewer ranks", index, s.key))
		}
		servers = append(servers, control.Server{Channel: s.channel, Addr: effects.Addr(at)})
	}
	if cfg.Share.Enabled { // Peers request the address of this channel.
		servers = append(servers, control.Server{Channel: effects.ChannelPeerDone, Addr: effects.Addr{Host: cfg.PeerHost}})
	}
	return servers, nil
}

// boundAddr returns the address at which a channel is served, with the port that was really bound, or the zero address
// if the channel is not served.
func boundAddr(servers []control.Server, channel effects.Channel) effects.Addr {
	for _, s := range servers {
		if s.Channel == channel {
			return s.Addr
		}
	}
	return effects.Addr{}
}
