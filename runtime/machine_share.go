package runtime

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
)

// configureSharing sets the machine's configuration of sharing, and of the directories that a node reports to and
// queries.
func configureSharing(c *rank.Config, cfg *config.Config, index int) {
	s := &cfg.Share
	if !s.Enabled {
		c.Sharing, c.Finding = rank.Sharing{}, rank.Finding{}
		return
	}
	c.Shares, c.LoansMax, c.BringsMax, c.ArenaPages, c.DevicePages = true, s.Max, s.Max, cfg.ArenaPages, cfg.NPUPages
	c.LookupAddr = effects.Addr{Host: cfg.PeerHost, Port: 1}
	c.PeerDoneAddr = c.LookupAddr
	if len(s.Feeds) == 0 {
		c.Finding = rank.Finding{}
		return
	}
	d := &c.Directory
	d.Wire = cfg.Limits
	for i := range s.Feeds {
		d.Directories = append(d.Directories, registrar.Directory{
			RequestAddr: effects.Addr(s.Replies[i]), FeedAddr: effects.Addr(s.Feeds[i]), Plain: s.Vanilla,
		})
	}
	d.Worker = registrar.Worker{Instance: s.Instance, Rank: uint32(index), IP: cfg.PeerHost, Location: hostMemoryLocation}
	if index < len(s.WorkerPorts) {
		d.Worker.Port = s.WorkerPorts[index]
	}
	d.BackoffMin, d.BackoffMax, d.LookupsMax = c.BackoffMin, c.BackoffMax, int(s.Max)
	d.LeaveTimeout = min(effects.Second, max(1, toNanos(cfg.DrainTimeout)/2)) // A drain waits for this.
}

// sharingMode returns the mode in which the chunks that a node requests are transferred.
func sharingMode(s *config.Share) p2p.Mode {
	if s.Pull {
		return p2p.Pull
	}
	return p2p.Push
}

// hostMemoryLocation is LMCache's name for a store in host memory.
const hostMemoryLocation = "LocalCPUBackend"

// setSharingAddrs sets the addresses at which the machine receives lookups and done messages, and the address of the
// handshake port that directories return to peers, after the ports have been bound.
func setSharingAddrs(c *rank.Config, bound []control.Server) {
	if !c.Shares {
		return
	}
	c.LookupAddr, c.PeerDoneAddr = boundAddr(bound, effects.ChannelLookup), boundAddr(bound, effects.ChannelPeerDone)
	if init := boundAddr(bound, effects.ChannelInit); len(c.Directory.Directories) > 0 {
		c.Directory.Worker.URL = protocol.Endpoint(init).String()
	}
}
