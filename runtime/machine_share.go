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

// shareOf translates what a configuration says of sharing, and of the directories that a node tells and asks.
func shareOf(c *rank.Config, cfg *config.Config, index int) {
	s := &cfg.Share
	if !s.Enabled {
		return
	}
	c.Tuning.AttemptsMax = s.Tries
	c.Sharing = rank.Sharing{
		Shares: true, ShareTTL: nanos(s.TTL), LoansMax: s.Max, BringsMax: s.Max, BringTimeout: nanos(s.GetTimeout),
		LookupTimeout: nanos(s.LookupTimeout), PushesMax: s.Gets, Keeps: s.Delay, LoanSharePct: s.LentBP / 100,
		ArenaPages: cfg.ArenaPages, DevicePages: cfg.NPUPages,
		LookupAddr: effects.Addr{Host: cfg.PeerHost, Port: 1}, PeerDoneAddr: effects.Addr{Host: cfg.PeerHost, Port: 1},
	}
	if len(s.Feeds) == 0 {
		return
	}
	c.Journal = s.Journal
	d := registrar.Default()
	d.Wire = cfg.Limits
	for i := range s.Feeds {
		d.Directories = append(d.Directories, registrar.Directory{
			Asks: effects.Addr(s.Replies[i]), Feed: effects.Addr(s.Feeds[i]), Plain: s.Vanilla,
		})
	}
	d.Worker = registrar.Worker{Instance: s.Instance, Rank: uint32(index), IP: cfg.PeerHost, Location: location}
	if index < len(s.WorkerPorts) {
		d.Worker.Port = s.WorkerPorts[index]
	}
	d.BackoffMin, d.BackoffMax = nanos(cfg.Link.BackoffMin), nanos(cfg.Link.BackoffMax)
	d.Beat, d.Report, d.Operations = nanos(s.Beat), nanos(s.Report), int(s.Operations)
	d.SyncBatch, d.SyncPause = int(s.SyncBatch), nanos(s.SyncPause)
	d.SyncPoll, d.SyncPolls = nanos(s.SyncPoll), s.SyncPolls
	d.Asking, d.Keep, d.Kept = nanos(s.Asking), nanos(s.Keep), int(s.Kept)
	d.Questions = int(s.Max)
	d.Leave = min(effects.Second, max(1, nanos(cfg.Push.DrainTimeout)/2)) // A drain waits for it.
	c.Directory = d
}

// modeOf is how what a node asks for comes.
func modeOf(s *config.Share) p2p.Mode {
	if s.Pull {
		return p2p.Pull
	}
	return p2p.Push
}

// location is what LMCache calls a store in host memory.
const location = "LocalCPUBackend"

// boundShare tells the machine where it is asked, and directories where peers begin, now that the ports are known.
func boundShare(c *rank.Config, bound []control.Server) {
	if !c.Shares {
		return
	}
	c.LookupAddr, c.PeerDoneAddr = boundAt(bound, effects.ChannelLookup), boundAt(bound, effects.ChannelPeerDone)
	if init := boundAt(bound, effects.ChannelInit); len(c.Directory.Directories) > 0 {
		c.Directory.Worker.URL = protocol.Endpoint(init).String()
	}
}
