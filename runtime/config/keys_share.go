package config

import (
	"errors"
	"fmt"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// The keys of sharing between peers, and of the controller that locates chunks.
const (
	p2pKey          = "enable_p2p"
	p2pHostKey      = "p2p_host"
	p2pInitKey      = "p2p_init_ports"
	p2pLookupKey    = "p2p_lookup_ports"
	controllerKey   = "enable_controller"
	instanceKey     = "lmcache_instance_id"
	pullURLKey      = "controller_pull_url"
	replyURLKey     = "controller_reply_url"
	workerPortsKey  = "lmcache_worker_ports"
	localSizeKey    = "max_local_cpu_size"
	extraPrefix     = "extra_config."
	extraTTLKey     = extraPrefix + "p2p_pull_pending_ttl"
	extraStagingKey = extraPrefix + "use_host_staging"
	arenaBytesKey   = extraPrefix + "os_staging_bytes"
	arenaThreadsKey = extraPrefix + "os_staging_copy_threads"
	lentKey         = "share.lent_pct"
	heartbeatKey    = "lmcache_worker_heartbeat_time"
	operationsKey   = extraPrefix + "kv_msg_batch_size"
	syncBatchKey    = extraPrefix + "full_sync_batch_size"
	vanillaKey      = "share.vanilla_controller"
	syncGetKey      = extraPrefix + "p2p_sync_get_timeout_s"
)

// shareKeys are LMCache's keys of peer-to-peer sharing, and the keys with which a worker finds LMCache's controller.
var shareKeys = []key{
	{name: p2pKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Share.Enabled }), def: "false",
		doc: "peers read the chunks of this node, and this node reads theirs; with `enable_pd` only if `pd_role` is `both`"},
	{name: p2pHostKey, kind: hostKind(func(d *draft) *string { return &d.p2pHost }),
		doc: "the address that a sharing node binds and advertises"},
	{name: p2pInitKey, kind: portsKind(func(d *draft) *[]uint16 { return &d.p2pInit }), doc: "the ports for its handshakes"},
	{name: p2pLookupKey, kind: portsKind(func(d *draft) *[]uint16 { return &d.cfg.Share.LookupPorts }),
		doc: "the ports where peers look up which chunks the node has"},
	{name: useNPUKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Share.NPU }), def: "false",
		doc: "a second pool, in the NPU's memory, beside the cache in host memory: chunks from peers are stored there, or " +
			"with `p2p_delay_pull` pass through it when they are fetched. Needs `transfer_channel: hccl`, which `auto` then " +
			"is; no effect if `pd_buffer_device: npu` puts the whole pool on the NPU"},
	{name: npuBytesKey, kind: sizeKind(1, 1<<46, func(d *draft) *uint64 { return &d.cfg.Share.StagingBytes }),
		doc: "the size of the second pool, rounded up to whole pages; 1 GiB if unset. Without `p2p_use_npu`, but with " +
			"`p2p_delay_pull`, the part of the pool into which fetches read, an eighth if unset. Two batches are enough for " +
			"fetches; otherwise the size limits how many chunks of peers the engine may hold at the same time"},
	{name: "p2p_pull_mode", kind: boolKind(func(d *draft) *bool { return &d.cfg.Share.Pull }), def: "false",
		doc: "this node reads the chunks that it requests; otherwise the peers write them into pages that this node grants " +
			"with the request"},
	{name: "p2p_delay_pull", kind: boolKind(func(d *draft) *bool { return &d.cfg.Machine.Keeps }), def: "false",
		doc: "chunks may stay at peers until the engine fetches them; needs `p2p_pull_mode`"},
	{name: "p2p_pull_pending_ttl",
		kind: durationKind(shareTTLMin, 24*time.Hour, func(d *draft) *effects.Duration { return &d.p2pTTL }),
		doc:  "the same as `extra_config.p2p_pull_pending_ttl`, which takes precedence"},
	{name: "p2p_sync_lookup_cache_ttl",
		kind: durationKind(0, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.Directory.CacheTime }),
		doc:  "how long the reply of a controller is cached; 0 disables the cache"},
	{name: "p2p_sync_lookup_cache_max_entries",
		kind: integerKind(0, 1<<20, func(d *draft) *int { return &d.cfg.Machine.Directory.CacheSize }),
		doc:  "the maximum number of cached replies"},
	{name: controllerKey, kind: boolKind(func(d *draft) *bool { return &d.controller }), def: "false",
		doc: "the node reports its chunks to controllers, or to kvferry's directories, and sends lookups to them; needs " +
			"`enable_p2p`. A chunk that a peer has put is reported only if its hash has at most 64 bits"},
	{name: instanceKey, kind: labelKind(256, func(d *draft) *string { return &d.cfg.Share.Instance }),
		doc: "the name under which controllers know this node; different for each node"},
	{name: pullURLKey, aliases: []string{"controller_url"},
		kind: endpointsKind(func(d *draft) *[]protocol.Endpoint { return &d.cfg.Share.Feeds }),
		doc:  "the address where a controller accepts reports; a list for several controllers"},
	{name: replyURLKey, kind: endpointsKind(func(d *draft) *[]protocol.Endpoint { return &d.cfg.Share.Replies }),
		doc: "the address where a controller accepts lookups; one for each controller"},
	{name: workerPortsKey, aliases: []string{"lmcache_worker_port"},
		kind: portsKind(func(d *draft) *[]uint16 { return &d.cfg.Share.WorkerPorts }),
		doc:  "the port for requests of controllers that this node reports to them; the node does not listen there"},
	{name: heartbeatKey,
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.Directory.HeartbeatEvery }),
		doc:  "the time between two heartbeats"},
	{name: localSizeKey, kind: kind{takes: "GiB, with decimals", read: readLocalSize}, def: "5.0",
		doc: "the page pool of a node that shares and has no `pd_buffer_size`"},
}

// shareTTLMin is the shortest lease for peers, because requesters of LMCache-Ascend refuse shorter leases.
const shareTTLMin = 16 * time.Second

// extraKeys are LMCache's keys of sharing that are below extra_config.
var extraKeys = []key{
	{name: extraTTLKey, derived: true,
		kind: durationKind(shareTTLMin, 24*time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.ShareTTL }),
		doc: "how long a peer may read the chunks that it requested; 60 s if unset; above 15 s, because LMCache-Ascend's " +
			"peers refuse less"},
	{name: extraPrefix + "p2p_max_retry_count",
		kind: integerKind(1, 100, func(d *draft) *uint32 { return &d.cfg.Machine.Tuning.AttemptsMax }),
		doc:  "how many times a request to a peer is tried if the connection is lost"},
	{name: extraPrefix + "p2p_lookup_timeout_s",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.LookupTimeout }),
		doc:  "the time limit for a peer's reply; then the lookup is a miss"},
	{name: syncGetKey,
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.BringTimeout }), derived: true,
		doc: "the time limit for a whole get; three times `p2p_lookup_timeout_s` and 2 s if unset", reloads: true},
	{name: extraPrefix + "p2p_sync_controller_lookup_timeout_ms",
		kind: millisecondsKind(1, 3_600_000, func(d *draft) *effects.Duration { return &d.cfg.Machine.Directory.LookupTimeout }),
		doc:  "the time limit for a controller's reply; then the next controller is queried"},
	{name: operationsKey,
		kind: integerKind(1, 4096, func(d *draft) *int { return &d.cfg.Machine.Directory.ReportOperations }),
		doc:  "the maximum number of changes in one report to a controller"},
	{name: extraPrefix + "kv_msg_batch_timeout",
		kind: durationKind(0, time.Minute, func(d *draft) *effects.Duration { return &d.cfg.Machine.Directory.ReportDelay }),
		doc:  "how long changes wait so that one report combines them"},
	{name: syncBatchKey,
		kind: integerKind(1, 4096, func(d *draft) *int { return &d.cfg.Machine.Directory.SyncBatchSlots }),
		doc:  "the number of slots of the store in one batch of a full sync"},
	{name: extraPrefix + "full_sync_batch_interval_ms",

		kind: millisecondsKind(0, 60_000, func(d *draft) *effects.Duration { return &d.cfg.Machine.Directory.SyncPause }),
		doc:  "the pause between two batches of a full sync"},
	{name: extraPrefix + "full_sync_status_poll_interval_s",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.Directory.SyncPoll }),
		doc:  "the pause between two queries for the progress of a full sync"},
	{name: extraPrefix + "full_sync_max_poll_attempts",
		kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.cfg.Machine.Directory.SyncPollsMax }), def: "60",
		doc: "the maximum number of such queries before the full sync is started again"},
	{name: extraStagingKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Share.Arena }), def: "false",
		doc: "chunks are copied to an arena behind the pool before peers read them, so that no read keeps a chunk in the " +
			"cache; needs `p2p_pull_mode`, and pages in host memory. Over `hccl` the pool is registered as well as the " +
			"arena, so this saves no registered memory"},
	{name: arenaBytesKey, kind: sizeKind(1, 1<<46, func(d *draft) *uint64 { return &d.cfg.Share.ArenaBytes }), def: "10GiB",
		doc: "the size of the arena, in whole pages, at least one page; a peer never uses more of the arena than it leaves " +
			"free. Chunks that do not fit are a miss"},
	{name: arenaThreadsKey, kind: integerKind(1, 1024, func(d *draft) *uint32 { return &d.cfg.Share.ArenaThreads }),
		def: "32", doc: "the number of pages that are copied at the same time"},
	{name: extraPrefix + "p2p_max_concurrent_gets",
		kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Machine.PushesMax }),
		doc: "the maximum number of peers' requests that this node serves at the same time by writing or copying; a peer " +
			"never has more than it leaves free"},
	{name: extraPrefix + "p2p_pull_lease_guard_s",
		kind: durationKind(0, time.Hour, func(d *draft) *time.Duration { return &d.unused }), def: "15.0",
		noEffect: "no effect: extra_config.kvferry.lease_guard sets how long before the end of a lease a reader stops",
		doc:      "no effect: see `lease_guard`"},
}

// shareOwnKeys are kvferry's own keys for a node that shares.
var shareOwnKeys = []key{
	{name: vanillaKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Share.Vanilla }), def: "false",
		doc: "the controllers are LMCache's own: the node sends nothing that they do not know, and reports everything again " +
			"if they missed something"},
	{name: "share.journal", kind: integerKind(16, 1<<24, func(d *draft) *uint32 { return &d.cfg.Machine.Journal }),
		doc: "how many changes a controller may be behind; a controller that is further behind receives all chunks again"},
	{name: "tables.shared", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Share.Max }), def: "256",
		doc: "the maximum number of gets from peers in progress, and of prefixes that peers read at the same time"},
	{name: lentKey, kind: percentKind(1, func(d *draft) *uint32 { return &d.cfg.Machine.LoanSharePct }),
		doc: "the largest percentage of the pool that peers may read at the same time; a page counts once for each lease"},
}

// controllersMax is the maximum number of controllers of a node.
const controllersMax = 64

// endpointsKind returns a kind that reads a host:port, or a list.
func endpointsKind(field func(*draft) *[]protocol.Endpoint) kind {
	return kind{takes: "host:port, or a list", read: func(d *draft, n *yaml.Node) (Code, string) {
		items := []*yaml.Node{n}
		if n.Kind == yaml.SequenceNode {
			items = n.Content
		}
		if len(items) == 0 || len(items) > controllersMax {
			return Range, fmt.Sprintf("write 1 to %d addresses: [192.168.1.10:9800]", controllersMax)
		}
		all := make([]protocol.Endpoint, len(items))
		for i, item := range items {
			at, code, remedy := parseEndpoint(item)
			if code != codeOK {
				return code, remedy
			}
			all[i] = at
		}
		*field(d) = all
		return codeOK, ""
	}}
}

// parseEndpoint parses host:port. The result is a remedy if the text is no endpoint, or if the host does not name a
// single host.
func parseEndpoint(n *yaml.Node) (protocol.Endpoint, Code, string) {
	s, isScalar := scalarText(n)
	if !isScalar {
		return protocol.Endpoint{}, Type, "write host:port"
	}
	at, err := protocol.ParseEndpoint(s)
	if bad := (*protocol.EndpointError)(nil); errors.As(err, &bad) {
		return at, Range, bad.Remedy // without the text, which may contain a password
	}
	name, remedy := checkHost(at.Host)
	if remedy != "" {
		return at, Range, remedy
	}
	at.Host = name
	return at, codeOK, ""
}

// readLocalSize reads a size in GiB, which is the unit that LMCache uses.
func readLocalSize(d *draft, n *yaml.Node) (Code, string) {
	s, remedy := unquotedText(n)
	if remedy != "" {
		return Type, remedy
	}
	v, err := parseFloat(s)
	if err != nil {
		return Type, "write a number of GiB"
	}
	if v <= 0 || v > 1<<16 {
		return Range, fmt.Sprintf("write a number of GiB above 0 and up to %d", 1<<16)
	}
	d.localBytes = uint64(v * (1 << 30))
	return codeOK, ""
}
