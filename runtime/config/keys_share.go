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
		doc: "peers read what this node has, and it reads what they have; with `enable_pd` only where `pd_role` is `both`"},
	{name: p2pHostKey, kind: hostKind(func(d *draft) *string { return &d.p2pHost }),
		doc: "what a node that shares binds and advertises"},
	{name: p2pInitKey, kind: portsKind(func(d *draft) *[]uint16 { return &d.p2pInit }), doc: "its handshakes"},
	{name: p2pLookupKey, kind: portsKind(func(d *draft) *[]uint16 { return &d.cfg.Share.LookupPorts }),
		doc: "where peers ask which chunks it has"},
	{name: useNPUKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Share.NPU }), def: "false",
		doc: "a second pool, in the NPU's memory, beside the cache in the host's: what is got of peers lands there, or with " +
			"`p2p_delay_pull` what is fetched passes through it. Needs `transfer_channel: hccl`, which `auto` is then; " +
			"without an effect where `pd_buffer_device: npu` puts the whole pool there"},
	{name: npuBytesKey, kind: sizeKind(1, 1<<46, func(d *draft) *uint64 { return &d.cfg.Share.StagingBytes }),
		doc: "the size of that pool, rounded up to whole pages; 1 GiB if unset. Without `p2p_use_npu`, but with " +
			"`p2p_delay_pull`, the part of the pool that fetches read into, an eighth if unset. For fetches two batches are " +
			"enough; else it bounds what the engine may hold of peers' chunks at a time"},
	{name: "p2p_pull_mode", kind: boolKind(func(d *draft) *bool { return &d.cfg.Share.Pull }), def: "false",
		doc: "this node reads what it asks for; else its peers write it into pages that it grants with the question"},
	{name: "p2p_delay_pull", kind: boolKind(func(d *draft) *bool { return &d.cfg.Machine.Keeps }), def: "false",
		doc: "chunks may stay with peers until the engine fetches them; needs `p2p_pull_mode`"},
	{name: "p2p_pull_pending_ttl",
		kind: durationKind(shareTTLMin, 24*time.Hour, func(d *draft) *effects.Duration { return &d.p2pTTL }),
		doc:  "as `extra_config.p2p_pull_pending_ttl`, which goes before it"},
	{name: "p2p_sync_lookup_cache_ttl",
		kind: durationKind(0, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.Directory.CacheTime }),
		doc:  "how long what a controller answered is believed; 0: not at all"},
	{name: "p2p_sync_lookup_cache_max_entries",
		kind: integerKind(0, 1<<20, func(d *draft) *int { return &d.cfg.Machine.Directory.CacheSize }),
		doc:  "answers that are kept"},
	{name: controllerKey, kind: boolKind(func(d *draft) *bool { return &d.controller }), def: "false",
		doc: "controllers, or directories of kvferry's, are told what this node has, and asked; needs `enable_p2p`. Of a " +
			"chunk that a peer put they are told only if its hash has at most 64 bits"},
	{name: instanceKey, kind: labelKind(256, func(d *draft) *string { return &d.cfg.Share.Instance }),
		doc: "what they call this node; its own for each"},
	{name: pullURLKey, aliases: []string{"controller_url"},
		kind: endpointsKind(func(d *draft) *[]protocol.Endpoint { return &d.cfg.Share.Feeds }),
		doc:  "where a controller is told; of several a list"},
	{name: replyURLKey, kind: endpointsKind(func(d *draft) *[]protocol.Endpoint { return &d.cfg.Share.Replies }),
		doc: "where it is asked; as many"},
	{name: workerPortsKey, aliases: []string{"lmcache_worker_port"},
		kind: portsKind(func(d *draft) *[]uint16 { return &d.cfg.Share.WorkerPorts }),
		doc:  "what controllers are told of this node's port for requests of theirs; nothing is served there"},
	{name: heartbeatKey,
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.Directory.HeartbeatEvery }),
		doc:  "between two heartbeats"},
	{name: localSizeKey, kind: kind{takes: "GiB, with decimals", read: readLocalSize}, def: "5.0",
		doc: "the page pool of a node that shares and has no `pd_buffer_size`"},
}

// shareTTLMin is the shortest lease for peers, because requesters of LMCache-Ascend refuse shorter leases.
const shareTTLMin = 16 * time.Second

// extraKeys are LMCache's keys of sharing that are below extra_config.
var extraKeys = []key{
	{name: extraTTLKey, derived: true,
		kind: durationKind(shareTTLMin, 24*time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.ShareTTL }),
		doc: "how long a peer may read what it asked for; 60 s if unset, and above 15 s, or LMCache-Ascend's peers refuse " +
			"it"},
	{name: extraPrefix + "p2p_max_retry_count",
		kind: integerKind(1, 100, func(d *draft) *uint32 { return &d.cfg.Machine.Tuning.AttemptsMax }),
		doc:  "how often a peer is asked whose connection is lost"},
	{name: extraPrefix + "p2p_lookup_timeout_s",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.LookupTimeout }),
		doc:  "a peer's answer; then it is a miss"},
	{name: syncGetKey,
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.BringTimeout }), derived: true,
		doc: "a whole get; thrice `p2p_lookup_timeout_s` and 2 s if unset"},
	{name: extraPrefix + "p2p_sync_controller_lookup_timeout_ms",
		kind: millisecondsKind(1, 3_600_000, func(d *draft) *effects.Duration { return &d.cfg.Machine.Directory.LookupTimeout }),
		doc:  "a controller's answer; then the next is asked"},
	{name: operationsKey,
		kind: integerKind(1, 4096, func(d *draft) *int { return &d.cfg.Machine.Directory.ReportOperations }),
		doc:  "changes in one report to a controller"},
	{name: extraPrefix + "kv_msg_batch_timeout",
		kind: durationKind(0, time.Minute, func(d *draft) *effects.Duration { return &d.cfg.Machine.Directory.ReportDelay }),
		doc:  "how long changes wait for more of them"},
	{name: syncBatchKey,
		kind: integerKind(1, 4096, func(d *draft) *int { return &d.cfg.Machine.Directory.SyncBatchSlots }),
		doc:  "slots of the store that one batch of a full sync tells of"},
	{name: extraPrefix + "full_sync_batch_interval_ms",

		kind: millisecondsKind(0, 60_000, func(d *draft) *effects.Duration { return &d.cfg.Machine.Directory.SyncPause }),
		doc:  "between two batches"},
	{name: extraPrefix + "full_sync_status_poll_interval_s",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.Directory.SyncPoll }),
		doc:  "between two questions how far a full sync is"},
	{name: extraPrefix + "full_sync_max_poll_attempts",
		kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.cfg.Machine.Directory.SyncPollsMax }), def: "60",
		doc: "of these, before it is begun anew"},
	{name: extraStagingKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Share.Arena }), def: "false",
		doc: "what peers read is copied first, to an arena behind the pool: then nothing that they read keeps a chunk in " +
			"the cache; needs `p2p_pull_mode`, and pages in host memory. Over `hccl` the pool is registered as well as the " +
			"arena: it saves none of that memory"},
	{name: arenaBytesKey, kind: sizeKind(1, 1<<46, func(d *draft) *uint64 { return &d.cfg.Share.ArenaBytes }), def: "10GiB",
		doc: "the arena, in whole pages, and a page at least; of it no peer has more than it leaves. What does not fit is " +
			"a miss"},
	{name: arenaThreadsKey, kind: integerKind(1, 1024, func(d *draft) *uint32 { return &d.cfg.Share.ArenaThreads }),
		def: "32", doc: "pages copied at a time"},
	{name: extraPrefix + "p2p_max_concurrent_gets",
		kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Machine.PushesMax }),
		doc: "questions of peers that this node answers by writing, or copies for, at a time; no peer has more than it " +
			"leaves"},
	{name: extraPrefix + "p2p_pull_lease_guard_s",
		kind: durationKind(0, time.Hour, func(d *draft) *time.Duration { return &d.unused }), def: "15.0",
		noEffect: "no effect: extra_config.kvferry.lease_guard is what a reader leaves", doc: "no effect: see `lease_guard`"},
}

// shareOwnKeys are kvferry's own keys for a node that shares.
var shareOwnKeys = []key{
	{name: vanillaKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Share.Vanilla }), def: "false",
		doc: "controllers are LMCache's own: nothing is sent that they do not know, and what they missed is told in full"},
	{name: "share.journal", kind: integerKind(16, 1<<24, func(d *draft) *uint32 { return &d.cfg.Machine.Journal }),
		doc: "changes that a controller may be behind; one that is further behind is told all that there is"},
	{name: "tables.shared", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Share.Max }), def: "256",
		doc: "gets from peers in progress, and prefixes that peers read at a time"},
	{name: lentKey, kind: percentKind(1, func(d *draft) *uint32 { return &d.cfg.Machine.LoanSharePct }),
		doc: "the most of the pool that peers read at a time, a page as often as it is lent"},
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
