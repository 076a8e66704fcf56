package config

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/protocol"
)

// Share has the parameters of a node that shares chunks with peers (enable_p2p). Without Enabled, the remaining fields
// have no effect.
type Share struct {
	Enabled bool
	// Only means that the node only shares chunks, without enable_pd. Handshakes are served at Config.InitPorts.
	Only bool
	// LookupPorts are the ports where peers look up which chunks the node has, by rank.
	LookupPorts []uint16
	// Max is the maximum number of gets in progress, of read leases granted to peers, and of lookups in progress at
	// directories.
	Max uint32
	// Pull means that the requesting node reads the chunks. Otherwise, the node that has the chunks writes.
	Pull bool
	// StagingBytes is the size of the pool part into which fetches read, if chunks may stay with peers until the fetch
	// (Machine.Keeps); see Config.StagingPages.
	StagingBytes uint64
	// NPU adds a second pool of NPUBytes in the NPU's own memory (Config.NPUPages), beside the pool in host memory,
	// which is the cache. With Delay, fetches read into the second pool. Otherwise, the chunks that peers write and
	// the chunks that this node reads from peers land there.
	NPU      bool
	NPUBytes uint64
	// Arena means that chunks are copied to an arena of ArenaBytes (Config.ArenaPages) before peers read the chunks,
	// by ArenaThreads threads.
	Arena        bool
	ArenaBytes   uint64
	ArenaThreads uint32

	// Feeds and Replies are the addresses of controllers: the node reports stored chunks to Feeds, and sends lookups
	// to Replies. Without controllers, the engine must know which peer has which chunk.
	Feeds, Replies []protocol.Endpoint
	Vanilla        bool // the controllers are LMCache's own
	// Instance is the name under which controllers know this node. WorkerPorts are the ports that the node reports to
	// controllers, by rank.
	Instance    string
	WorkerPorts []uint16
}

const (
	npuBytesDefault = 1 << 30            // bytes of the pool in the NPU's memory
	getExtraTime    = 2 * effects.Second // duration of a get beyond its lookups
)

// validateShare checks the keys of sharing together. A node without enable_pd gets both roles.
func (d *draft) validateShare() {
	s := &d.cfg.Share
	if !s.Enabled {
		d.resetSharingKeys()
		return
	}
	d.requireKey(p2pHostKey, "name the address under which peers reach this node")
	d.requireKey(p2pInitKey, "name a port for each rank, such as [9960, 9961]")
	d.requireKey(p2pLookupKey, "name a port for each rank, such as [9962, 9963]")
	switch {
	case !d.enablePD:
		s.Only, d.cfg.Role, d.skipProxy = true, Both, true
		d.cfg.PeerHost, d.cfg.InitPorts, d.cfg.AllocPorts = d.p2pHost, d.p2pInit, nil
		if !d.isGiven(bufferKey) {
			d.cfg.BufferBytes = d.localBytes
		}
	case d.cfg.Role != Both:
		d.addProblemAt(p2pKey, Conflict, "a sharing node connects to peers and accepts connections: with enable_pd set "+
			"pd_role: both, or enable_pd: false")
	case d.cfg.PeerHost != d.p2pHost || !slices.Equal(d.cfg.InitPorts, d.p2pInit):
		d.addProblemAt(p2pInitKey, Conflict, "a node has one port for handshakes: give the host and the ports of pd_peer_host and "+
			"pd_peer_init_port")
	}
	if d.cfg.Pull.Enabled && d.enablePD {
		d.addProblemAt(p2pKey, Unsupported, unsupportedPrefix+"a sharing node pushes its prefills; set pd_pull_mode: false")
	}
	if d.cfg.Machine.Keeps && !s.Pull {
		d.addProblemAt("p2p_delay_pull", Conflict, "chunks that peers write cannot stay at the peers: set p2p_pull_mode: "+
			"true, or remove it")
	}
	d.validateNPUPool()
	switch {
	case !s.Arena:
		for _, name := range []string{arenaBytesKey, arenaThreadsKey} {
			d.addNote(name, "no effect without use_host_staging: peers read the pages of the pool")
		}
		s.ArenaBytes, s.ArenaThreads = 0, 0
	case !s.Pull:
		d.addProblemAt(extraStagingKey, Conflict, "the arena is only for peers that read: set p2p_pull_mode: true, or remove "+
			"it")
	case s.NPU && !d.cfg.Machine.Keeps:
		d.addProblemAt(extraStagingKey, Conflict, "chunks are read into the NPU's memory, and the arena has copies of the "+
			"host pool only: set p2p_delay_pull: true, or use_host_staging: false, or p2p_use_npu: false")
	case d.cfg.Device.Kind == DeviceNPU:
		d.addProblemAt(extraStagingKey, Unsupported, unsupportedPrefix+"the arena lies behind the pool, which is the device's: set "+
			"pd_buffer_device: cpu, or use_host_staging: false")
	}
	if d.cfg.Machine.Recalls {
		d.addProblemAt(p2pKey, Unsupported, unsupportedPrefix+"recalls and sharing do not go together; set pd_bidirectional: false")
	}
	if !d.isGiven(retentionKey) {
		d.cfg.Machine.Retention = store.Cache
	} else if d.cfg.Machine.Retention != store.Cache {
		d.addProblemAt(retentionKey, Conflict, "a sharing node keeps its chunks: remove it, or write cache")
	}
	m := &d.cfg.Machine
	if !d.isGiven(extraTTLKey) && d.p2pTTL > 0 {
		m.ShareTTL = d.p2pTTL
	}
	if !d.isGiven(syncGetKey) {
		m.BringTimeout = 3*m.LookupTimeout + getExtraTime
	}
	d.noteShare()
	d.validateController()
}

// noteShare adds a note if p2p_npu_buffer_size has no effect, and resets the staging size then.
func (d *draft) noteShare() {
	if s := &d.cfg.Share; !d.cfg.Machine.Keeps && !s.NPU {
		d.addNote(npuBytesKey, "no effect without p2p_use_npu or p2p_delay_pull: there is no pool on the NPU, and no fetch "+
			"reads from peers")
		s.StagingBytes = 0
	}
}

// validateNPUPool checks the keys of the second pool, in the NPU's memory.
func (d *draft) validateNPUPool() {
	s, c := &d.cfg.Share, &d.cfg
	if !s.NPU {
		return
	}
	if c.Device.Kind == DeviceNPU {
		d.addNote(useNPUKey, fmt.Sprintf("no effect: %s puts the whole pool on the NPU, where shared chunks are stored anyway",
			d.deviceKey()))
		s.NPU = false
		return
	}
	switch c.Channel {
	case ChannelAuto:
		c.Channel = ChannelHCCL
	case ChannelSHM, ChannelTCP, ChannelNIXL:
		d.addProblemAt(useNPUKey, Conflict, fmt.Sprintf("transfer_channel %v moves memory of the host, and this is a pool in the NPU's: "+
			"set transfer_channel: hccl, or p2p_use_npu: false", c.Channel))
	case ChannelHCCL:
	}
	if s.NPUBytes, s.StagingBytes = s.StagingBytes, 0; s.NPUBytes == 0 {
		s.NPUBytes = npuBytesDefault
	}
}

// validateController checks the controllers to which a node reports chunks.
func (d *draft) validateController() {
	s := &d.cfg.Share
	if !d.controller {
		for _, name := range []string{pullURLKey, replyURLKey} {
			d.addNote(name, "no effect while enable_controller is false: the engine names the peer that has the chunks")
		}
		s.Feeds, s.Replies = nil, nil
		return
	}
	d.requireKey(instanceKey, "give each node a different name, such as lmcache_instance_1")
	d.requireKey(pullURLKey, "give the address where the controller accepts reports, such as 192.168.1.10:9800")
	d.requireKey(replyURLKey, "give the address where the controller accepts lookups, such as 192.168.1.10:9900")
	d.requireKey(workerPortsKey, "name a port for each rank, such as [9950, 9951]")
	if len(s.Feeds) != len(s.Replies) {
		d.addProblemAt(replyURLKey, Conflict, fmt.Sprintf("it lists %d and %s lists %d; give both addresses of each "+
			"controller", len(s.Replies),
			pullURLKey, len(s.Feeds)))
	}
}

// resetSharingKeys resets the keys of sharing and removes their problems, at a node that does not share.
func (d *draft) resetSharingKeys() {
	for _, k := range slices.Concat(shareKeys, extraKeys) {
		s, given := d.settings[k.name]
		if !given || k.name == p2pKey {
			continue
		}
		d.problems = slices.DeleteFunc(d.problems, func(p Problem) bool { return p.File == s.file && p.Field == s.field })
	}
	const why = "no effect while enable_p2p is false"
	for _, name := range []string{p2pHostKey, p2pInitKey, p2pLookupKey, useNPUKey, "p2p_pull_mode", "p2p_delay_pull",
		controllerKey} {
		d.addNote(name, why)
	}
	own, m := rank.DefaultConfig(), &d.cfg.Machine
	d.cfg.Share, m.Sharing, m.Finding, m.Tuning.AttemptsMax = Share{}, own.Sharing, own.Finding, own.Tuning.AttemptsMax
}

// TransferMode returns how chunks move between nodes: "push", "pull", "delayed pull" or "layer by layer". For a node
// that shares, the result is "sharing by" and one of the first three, after the mode between prefill and decode if the
// node has such a role, for example "push, sharing by delayed pull".
func (c *Config) TransferMode() string {
	mode := c.Pull.String()
	if c.Layerwise.Enabled {
		mode = "layer by layer"
	}
	if !c.Share.Enabled {
		return mode
	}
	sharing := "sharing by " + Pull{Enabled: c.Share.Pull, Delay: c.Machine.Keeps}.String()
	if c.Share.Only {
		return sharing
	}
	return mode + ", " + sharing
}
