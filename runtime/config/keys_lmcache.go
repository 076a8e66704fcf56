package config

import (
	"time"

	"github.com/kvferry/kvferry/effects"
)

// The roles that read a key, in the words of the documentation.
const (
	roleBoth             = "both"
	roleSender           = "sender"
	roleReceiver         = "receiver"
	rolePullReceiver     = "pull receiver"
	rolePullSender       = "pull sender"
	roleBothRequired     = "both, required"
	roleSenderRequired   = "sender, required"
	roleReceiverRequired = "receiver, required"
	roleServingRequired  = "receiver and pull sender, required"
)

// lmcacheKeys are LMCache's keys that have an effect on this transfer.
var lmcacheKeys = []key{
	{name: "enable_pd", aliases: []string{"enable_xpyd"}, role: roleBothRequired,
		kind: boolKind(func(d *draft) *bool { return &d.enablePD }),
		doc:  "must be true: kvferry is the transfer between prefill and decode"},
	{name: "pd_role", aliases: []string{"nixl_role"}, role: roleBothRequired,
		kind: wordKind(func(d *draft) *Role { return &d.cfg.Role },
			[]choice[Role]{{"sender", Sender}, {"receiver", Receiver}, {"both", Both}}, 0, nil),
		doc: "prefiller, decoder, or both at once"},
	{name: "transfer_channel", role: roleBoth, kind: channelKind, def: "auto",
		doc: "`auto` is shared memory on one host, else TCP, and `hccl`, the NPUs' own links, where `pd_buffer_device` is " +
			"`npu`; `hixl` and `hcomm_onesided` are taken, with a note, for `hccl`, and `mooncake` and " +
			"`mock_memory` for `auto`; `nixl` is [libnixl](nixl.md)"},
	{name: "chunk_size", role: roleBoth, kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.cfg.ChunkTokens }),
		def: "256", doc: "tokens of a full chunk; equal on all nodes"},
	{name: "pd_buffer_size", aliases: []string{"nixl_buffer_size"}, role: roleBothRequired,
		kind: sizeKind(1, 1<<46, func(d *draft) *uint64 { return &d.cfg.BufferBytes }),
		doc:  "the page pool, rounded up to whole pages"},
	{name: deviceKey, role: roleBothRequired, kind: kind{takes: "cpu, npu, npu:0 or cuda", read: readDevice},
		doc: "where the pool lies: in host memory, or on an [NPU](#ascend-npus); `cuda` is accepted, with a note, and means " +
			"`cpu`"},
	{name: legacyDeviceKey, role: roleBoth, kind: kind{takes: "cpu, npu, npu:0 or cuda", read: readLegacyDevice},
		doc: "the name of `pd_buffer_device` in older files; no effect if `pd_buffer_device` is given"},
	{name: "pd_peer_host", aliases: []string{"nixl_peer_host"}, role: roleServingRequired,
		kind: hostKind(func(d *draft) *string { return &d.cfg.PeerHost }),
		doc: "the address that the node binds and advertises; a sender in push mode uses it only as its own name and may " +
			"omit it"},
	{name: initPortKey, aliases: []string{"nixl_peer_init_port"}, role: roleReceiverRequired,
		kind: portsKind(func(d *draft) *[]uint16 { return &d.cfg.InitPorts }),
		doc: "the ports for a receiver's handshakes; on a sender in pull mode, optional, the ports for renewals of its " +
			"offers"},
	{name: allocPortKey, aliases: []string{"nixl_peer_alloc_port"}, role: roleReceiverRequired,
		kind: portsKind(func(d *draft) *[]uint16 { return &d.cfg.AllocPorts }),
		doc:  "the ports for a receiver's allocations; a sender does not bind them, see `pd_pull_done_port`"},
	{name: "pd_proxy_host", aliases: []string{"nixl_proxy_host"}, role: roleSenderRequired,
		kind: hostKind(func(d *draft) *string { return &d.cfg.Proxy.Host }),
		doc:  "the proxy that a sender notifies when the last batch of a request has ended"},
	{name: "pd_proxy_port", aliases: []string{"nixl_proxy_port"}, role: roleSenderRequired,
		kind: portKind(func(d *draft) *uint16 { return &d.cfg.Proxy.Port }),
		doc:  "the proxy's port, the same for all ranks"},
	{name: "pd_skip_proxy_notification", role: roleSender, kind: boolKind(func(d *draft) *bool { return &d.skipProxy }),
		def: "false",
		doc: "send no notification to a proxy; then a sender needs no `pd_proxy_*` keys"},
	{name: "pd_alloc_fail_backoff_ttl", role: roleBoth,
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.BreakerTTL }),
		doc: "how long a sender sends nothing to a receiver that could not allocate; on a receiver, how long the allocation " +
			"of a batch waits for pages"},
	{name: "pd_allocation_timeout_sec", role: roleReceiver,
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.allocTimeout }),
		doc:  "on a receiver, how long the allocation of a batch waits for pages; `pd_alloc_fail_backoff_ttl` if unset"},
	{name: "pd_shutdown_timeout_sec", role: roleBoth,
		kind: durationKind(0, time.Hour, func(d *draft) *time.Duration { return &d.cfg.DrainTimeout }),
		def:  "5.0", doc: "how long a graceful close may take", reloads: true},
	{name: "pd_condition_poll_interval_sec", role: roleBoth,
		kind: durationKind(0, time.Hour, func(d *draft) *time.Duration { return &d.unused }),
		def:  "0.005", noEffect: "no effect: nothing here polls", doc: "no effect: nothing here polls"},
	{name: "pd_max_prefill_len", role: roleBoth,
		kind: integerKind(0, 1<<30, func(d *draft) *uint32 { return &d.cfg.maxPrefillTokens }), def: "0",
		doc: "the number of tokens that the pool must be able to hold, checked at start; 0 disables the check"},
	{name: "pd_backend_mode", role: roleBoth, kind: wordKind(func(d *draft) *string { return &d.unusedWord },
		[]choice[string]{{"async", ""}, {"sync", ""}}, 0, nil), def: "async",
		noEffect: "no effect: there is one implementation; what a receiver answers is extra_config.kvferry.reply_form",
		doc:      "no effect; what a receiver answers is `extra_config.kvferry.reply_form`"},
	{name: "retrieve_locations", aliases: []string{"pd_retrieve_locations"}, role: roleReceiver,
		kind: kind{takes: "list of backends", read: readRetrieveLocations}, doc: "on a receiver only `[PDBackend]` is " +
			"accepted"},
	{name: "store_location", aliases: []string{"pd_store_location"}, role: roleReceiver,
		kind: kind{takes: "backend", read: readStoreLocation}, doc: "on a receiver any value except `PDBackend` is accepted"},

	{name: "pd_pull_mode", role: roleBoth, kind: boolKind(func(d *draft) *bool { return &d.cfg.Pull.Enabled }), def: "false",
		doc: "the sender offers its pages and the receiver reads them; equal on both ends"},
	{name: "pd_delay_pull", role: rolePullReceiver, kind: boolKind(func(d *draft) *bool { return &d.cfg.Pull.Delay }), def: "false",
		doc: "the receiver reads chunks only when the engine fetches them; needs `pd_pull_mode`"},
	{name: donePortKey, role: rolePullSender, kind: portsKind(func(d *draft) *[]uint16 { return &d.cfg.Pull.DonePorts }),
		doc: "the ports where receivers report to a sender what they have read; `pd_peer_alloc_port` + 100 if unset"},
	{name: offloadKey, role: rolePullSender, kind: boolKind(func(d *draft) *bool { return &d.cfg.Offload }),
		def: "false",
		doc: "the pool is host memory although `pd_buffer_device` is `npu`: the engine copies computed chunks from the NPU " +
			"into the pool"},
	{name: cpuBufferKey, role: roleBoth, kind: sizeKind(0, 1<<46, func(d *draft) *uint64 { return &d.cpuBufferBytes }),
		doc: "the size of the pool if the pool is in host memory: with `pd_use_cpu_offload`, or with `pd_buffer_device: " +
			"cpu`; `pd_buffer_size` if unset or 0"},
	{name: "pd_pull_pending_ttl", role: rolePullSender, kind: durationKind(time.Second, 24*time.Hour,
		func(d *draft) *effects.Duration { return &d.cfg.Machine.PullTTL }),
		doc: "how long an offer is valid that no receiver reports as read; its pages stay in use until then"},
	{name: "pd_handoff_lease_ttl", role: rolePullReceiver,
		kind: durationKind(0, 24*time.Hour, func(d *draft) *time.Duration { return &d.unused }), def: "300.0",
		noEffect: "no effect: how long a chunk waits for its request is extra_config.kvferry.retention",
		doc:      "no effect; how long a chunk waits for its request is `extra_config.kvferry.retention`"},
	{name: "pd_pull_backpressure_reserve_pct", role: rolePullSender,
		kind: reserveKind(func(d *draft) *uint32 { return &d.cfg.Machine.ReservePPM }),
		doc: "the percentage of the pool that is never offered: at most floor(pages × (1 − percentage / 100)) pages are " +
			"offered; further puts wait"},
	{name: bidirectionalKey, role: roleBoth, kind: boolKind(func(d *draft) *bool { return &d.cfg.Machine.Recalls }),
		def: "false",
		doc: "a sender may read back chunks that a receiver still has; needs `pd_peer_query_port` on the receiver, whose " +
			"pool becomes a cache"},
	{name: queryPortKey, role: roleReceiver, kind: kind{takes: queryPorts.takes, read: readQueryPorts},
		doc: "the ports where senders query which chunks the receiver has; needs `pd_bidirectional`"},
	{name: layerwiseKey, role: roleBoth, kind: boolKind(func(d *draft) *bool { return &d.cfg.Layerwise.Enabled }),
		def: "false",
		doc: "a prefill pushes each layer as soon as it is computed, and a page of its pool holds one layer. A receiver with " +
			"it has a page for each layer and accepts layers only, so its senders need it, too; a receiver without it gets " +
			"each chunk in one page, once all layers are computed"},
	{name: unfullKey, role: roleSender, kind: boolKind(func(d *draft) *bool { return &d.savesUnfull }),
		doc: "no effect: the last partial chunk of a prefill is sent if the engine puts it"},
}

// The keys of pools.
const (
	deviceKey       = "pd_buffer_device"
	legacyDeviceKey = "nixl_buffer_device"
	bufferKey       = "pd_buffer_size"
	cpuBufferKey    = "pd_cpu_buffer_size"
	offloadKey      = "pd_use_cpu_offload"
)
