package config

import (
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/protocol"
)

// connsMax is the maximum number of connections of the control transport. The limit of open files determines the
// actual number when a node opens.
const connsMax = 1 << 15

// overcommitKey selects when the memory of the pools is allocated.
const overcommitKey = "data.overcommit"

// checksumKey selects whether chunks are compared with checksums of their sources, and keepCorruptKey what becomes of
// those that differ.
const (
	checksumKey    = "data.checksum"
	keepCorruptKey = "data.checksum_keep"
)

// lockKey selects whether the pages are locked in memory, and hugeKey whether the pool is in huge pages.
const (
	lockKey = "pool.lock"
	hugeKey = "pool.huge_pages"
)

// nodeKeys are kvferry's own keys for every node, below extra_config.kvferry. A dot in a name stands for a nested
// mapping.
var nodeKeys = []key{
	{name: "layout.num_layers", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.layout.layers }),
		doc: "layers of the model"},
	{name: "layout.num_kv_heads", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.layout.kvHeads }),
		doc: "KV heads of one rank; not with `mla`"},
	{name: "layout.head_size", kind: integerKind(1, 1<<20, func(d *draft) *uint32 { return &d.layout.headSize }),
		doc: "elements of a head; with `mla`, of the aligned latent head"},
	{name: "layout.dtype", kind: kind{takes: "a dtype such as bfloat16 or half", read: readDtype}, doc: "type of an element"},
	{name: "layout.mla", kind: boolKind(func(d *draft) *bool { return &d.layout.mla }), def: "false",
		doc: "the model keeps one latent head instead of keys and values"},

	{name: "reply_form", kind: wordKind(func(d *draft) *protocol.ReplyForm { return &d.cfg.Machine.ReplyForm }, replyForms(), 0,
		nil),
		def: "ascend",
		doc: "the form of a receiver's reply to a push: LMCache-Ascend's, or one of upstream's revisions; senders read all " +
			"forms"},
	{name: "trust_uncommitted",
		kind: offSwitchKind("every plane requires a proof from a sender, so no byte of a sender without kvferry's extensions " +
			"arrives, and a chunk that is accepted without a proof would contain the page's previous content; set " +
			"trust_uncommitted: false, and run kvferry at the sender"), def: "false",
		doc: "no other value is accepted: no plane lets a sender write that cannot commit"},
	{name: "put_timeout",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.PutTimeout }),
		doc:  "the time after which a put fails", reloads: true},
	{name: "get_timeout",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.GetWaitMax }), def: "30",
		doc: "the longest time that a get waits for chunks that have not arrived"},
	{name: "alloc_timeout",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.ownAllocTimeout }),
		doc:  "overrides `pd_allocation_timeout_sec`"},
	{name: "retention",
		kind: durationKind(time.Second, 24*time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.ClaimTTL }), def: "480",
		doc: "how long a receiver keeps a chunk for its request; set it longer than requests wait in the decode engine's " +
			"queue. After that time the chunk is dropped, and a get fails as `lapsed`"},
	{name: "store.retention", kind: wordKind(func(d *draft) *store.Retention { return &d.cfg.Machine.Retention },
		[]choice[store.Retention]{{"consume", store.Consume}, {"cache", store.Cache}}, 0, nil), def: "consume",
		doc: "what happens to a chunk that no request expects: `consume` drops it, `cache` keeps it while there is room; " +
			"`cache` if unset with `pd_bidirectional`"},
	{name: "recall.timeout",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.RecallTimeout }),
		doc:  "the time after which a sender's recall fails; the engine computes the missing chunks", reloads: true},
	{name: "lease",
		kind: durationKind(100*time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.Lease }),
		doc:  "how long a write grant is valid; nothing extends it. Raise it if puts end as `expired` while they transfer"},
	{name: "lease_guard",
		kind:    durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.LeaseGuard }),
		derived: true,
		doc: "how long before the end of a grant or lease its holder stops: it submits nothing more, no transfer and no batch; " +
			"shorter than `lease` and than a sender's `pd_pull_pending_ttl`; 1 s if unset, at most a quarter of `lease`"},
	{name: "clock_drift_ppm", kind: integerKind(1, 100_000, func(d *draft) *uint32 { return &d.cfg.Machine.DriftPPM }),
		doc: "the largest drift between the clocks of two nodes, in millionths; the holder of a lease stops that much of the " +
			"lease earlier, besides `lease_guard`"},
	{name: "request_ttl",
		kind: durationKind(time.Second, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.RequestTTL }),
		doc: "how long a sender remembers a request without new batches; set it longer than the pauses between the batches " +
			"of one prefill"},
	{name: "abandon_ttl",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.AbandonTTL }),
		doc:  "how long a receiver refuses chunks that arrive for a request that its engine has abandoned"},
	{name: "peer_share_pct", kind: percentKind(1, func(d *draft) *uint32 { return &d.cfg.Machine.PeerSharePct }), def: "50",
		doc: "the largest percentage of the pool that one peer may hold; while several peers are active, landed chunks count " +
			"as well as granted pages. Lower it if one prefill node can starve the others"},
	{name: "origin_share_pct", kind: percentKind(1, func(d *draft) *uint32 { return &d.cfg.Machine.OriginSharePct }), derived: true,
		doc: "the largest percentage of the pool that all peers of one host, or of one identity at a host, may hold together, " +
			"landed chunks included, while a peer of another host is active; at least `peer_share_pct`; 75 % if unset, or " +
			"`peer_share_pct` if that is more"},
	{name: "tenant_share_pct", kind: percentKind(1, func(d *draft) *uint32 { return &d.cfg.Machine.TenantSharePct }), def: "100",
		doc: "the largest percentage of the pool for the chunks of one tenant, from all peers and the engine, while another " +
			"tenant has pages or waits for some; 100 % is no limit. Lower it if one tenant can starve the others; a tenant " +
			"without pages may have those of one request, however large. A change from or to 100 % needs a restart", reloads: true},
	{name: "engine_share_pct", kind: percentKind(1, func(d *draft) *uint32 { return &d.cfg.Machine.EngineSharePct }),
		doc: "with `pd_role: both`, the largest percentage of the pool that the engine may hold"},

	{name: "pull.staging_bytes", kind: sizeKind(1, 1<<46, func(d *draft) *uint64 { return &d.cfg.Pull.StagingBytes }),
		doc: "the part of a receiver's pool into which fetches read, with `pd_delay_pull`; a batch uses up to half of its " +
			"whole pages, and with one page nothing overlaps; if unset, an eighth of the pool, at least two pages"},
	{name: "pull.fetch_timeout", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *effects.Duration { return &d.cfg.Machine.FetchTimeout }),
		doc: "the longest time of a receiver's fetch: waiting, reading and scattering"},
	{name: "pull.read_timeout", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *effects.Duration { return &d.cfg.Machine.ReadTimeout }),
		doc: "the longest time for which a receiver reads one offer, if it reads offers as they arrive"},
	{name: "pull.lead_min",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.LeadMin }),
		doc:  "with `pd_delay_pull`, a receiver refuses an offer that ends earlier than this time after its `lease_guard`"},
	{name: "pull.loan_max",
		kind: durationKind(time.Second, 240*time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.ReadLeaseMax }),
		doc: "the longest time for which a sender's offer is valid, including renewals; at least `pd_pull_pending_ttl`; ten " +
			"times that if unset"},

	{name: "link.request_timeout", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *effects.Duration { return &d.cfg.Machine.ReplyTimeout }), def: "10",
		doc: "the time limit for one request and its reply; longer than the receiver's allocations wait"},
	{name: "link.window", kind: integerKind(1, 16, func(d *draft) *uint16 { return &d.cfg.Machine.Window }), def: "16",
		doc: "the maximum number of requests in flight to one allocation port; the smaller of both ends' values applies"},
	{name: "link.carry_bytes", kind: sizeKind(0, 32<<20, func(d *draft) *uint32 { return &d.cfg.Machine.Carries }),
		def: "64KiB", doc: "a put of at most this size is sent together with its allocation request, in one round trip " +
			"instead of two and a transfer, if both ends allow it; at most half of `limits.message_bytes`; 0 disables it. It " +
			"does not apply to a pool that a device reads"},
	{name: "link.backoff_min",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.BackoffMin }),
		doc:  "the first pause before connecting again; it doubles, with jitter"},
	{name: "link.backoff_max",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.BackoffMax }),
		doc:  "the longest pause"},
	{name: "link.unfit_backoff", kind: durationKind(time.Second, 24*time.Hour,
		func(d *draft) *effects.Duration { return &d.cfg.Machine.UnfitBackoff }),
		doc: "the pause before a receiver of an incompatible kind is tried again"},
	{name: "link.handshake_timeout", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *time.Duration { return &d.cfg.Link.HandshakeTimeout }),
		def: "10", doc: "how long the handshake of a peer's connection may take; then the connection is closed"},
	{name: "link.message_timeout", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *time.Duration { return &d.cfg.Link.MessageTimeout }),
		def: "30", doc: "how long a message may take from its first byte to its last; then its connection is closed"},
	{name: "link.peer_names", kind: boolKind(func(d *draft) *bool { return &d.cfg.Link.PeerNames }),
		def: "false",
		doc: "senders in pull mode may give a host name as the address where they accept messages (`pd_peer_host`); " +
			"otherwise such an offer is refused (except `localhost`), because the peer would choose which host this node " +
			"contacts"},
	{name: "link.name_timeout", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *time.Duration { return &d.cfg.Link.NameTimeout }),
		def: "3", doc: "how long a lookup at a name server may take"},
	{name: "link.name_ttl",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.Link.NameTTL }),
		def:  "30", doc: "how long the addresses of a name are cached; if no process listens there, they are looked up again " +
			"at once"},
	{name: "link.name_negative_ttl", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *time.Duration { return &d.cfg.Link.NameNegativeTTL }),
		def: "1", doc: "how long the result that a name has no address is cached"},

	{name: "poll.us", kind: microsecondsKind(0, 1_000_000, func(d *draft) *time.Duration { return &d.cfg.Poll }), def: "0",
		doc: "for how many microseconds the node polls for the next message after each control message, or after each reply " +
			"to an engine, before it sleeps, if the next message usually arrives in that time: [small puts take a fraction " +
			"of the time](benchmarks.md#small-puts), but a core is busy; 0 disables polling. Not with `libzmq`"},

	{name: "control.transport", kind: wordKind(func(d *draft) *Control { return &d.cfg.Control },
		[]choice[Control]{{"zmq", ControlZMQ}, {"libzmq", ControlLibZMQ}}, 0, nil), def: "zmq",
		doc: "the transport of control messages: kvferry's own implementation of ZeroMQ's wire protocol, or `libzmq`, which " +
			"needs a build with `-tags libzmq` and has [fewer bounds](safety.md#control-over-libzmq) on what an unknown " +
			"connection can use; the two ends may differ"},

	{name: "tables.peers", kind: integerKind(1, connsMax, func(d *draft) *uint32 { return &d.cfg.Machine.PeersMax }), def: "1024",
		doc: "the maximum number of peers with a handshake"},
	{name: "tables.conns", kind: integerKind(1, connsMax, func(d *draft) *uint32 { return &d.cfg.Bounds.Conns }),
		def: "4096", doc: "the maximum number of connections to peers"},
	{name: "tables.guests", kind: integerKind(0, 1<<16, func(d *draft) *uint32 { return &d.cfg.Bounds.Inbound }), def: "0",
		doc: "the maximum number of inbound connections of peers; 0 is 8192, but at most half of the files that the process " +
			"may open"},
	{name: "tables.guests_per_address",
		kind: integerKind(0, 1<<16, func(d *draft) *uint32 { return &d.cfg.Bounds.InboundPerAddress }), def: "0",
		doc: "the maximum number of inbound connections from one address; 0 is seven eighths of `tables.guests`"},
	{name: "tables.strangers", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Bounds.PendingHandshakes }),
		def: "256",
		doc: "the maximum number of connections from one address without a completed handshake, on the control plane and on " +
			"each data plane"},
	{name: "tables.commands", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Bounds.Commands }),
		def: "1024", doc: "the maximum number of engine commands in progress"},
	{name: "tables.recalls", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Machine.RecallsMax }),
		doc: "the maximum number of a sender's recalls in progress, and of prefixes that a receiver holds for senders to read"},
	{name: "tables.waiters", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Machine.WaitersMax }), def: "4096",
		doc: "the maximum number of allocations that wait for pages; a peer never has more waiting allocations than it " +
			"leaves free for others"},
	{name: "tables.waiting_bytes",
		kind: sizeKind(64<<10, 64<<30, func(d *draft) *uint64 { return &d.cfg.Machine.WaitingBytes }),
		doc:  "the maximum size of the messages of waiting allocations; a peer never uses more than it leaves free for others"},
	{name: "tables.mailbox", kind: integerKind(16, 1<<20, func(d *draft) *uint32 { return &d.cfg.Bounds.Mailbox }),
		def: "4096", doc: "the maximum number of inbound messages that wait for the event loop"},

	{name: messageBytesKey, kind: sizeKind(4<<10, 64<<20, func(d *draft) *uint64 { return &d.messageBytes }),
		def: "1MiB", doc: "the maximum size of a message; if unset with `register.engine_id`, the size of the longest " +
			"registration"},
	{name: keysPerBatchKey, kind: integerKind(1, pagesRegisteredMax, func(d *draft) *uint32 { return &d.keysPerBatch }),
		def: "4096",
		doc: "the maximum number of keys in one message: a larger call of an engine is done in parts, a larger message of a " +
			"peer is refused; at most 65536. With `register.engine_id`, the maximum number of pages of one registration, and " +
			"524288 if unset"},
	{name: "limits.key_bytes", kind: integerKind(64, 64<<10, func(d *draft) *uint32 { return &d.keyBytes }), def: "512",
		doc: "the maximum length of a key"},
	{name: "limits.request_bytes", kind: integerKind(16, 1<<10, func(d *draft) *uint32 { return &d.cfg.Machine.RequestIDMax }),
		doc: "the maximum length of a request id"},
	{name: "limits.rows_per_step", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Machine.Tuning.SweepRows }),
		doc: "the maximum number of table rows that one step of the node ends if one event ends more: a drain, a lost peer, " +
			"an abandoned request. Later steps end the rest, and messages are processed in between"},

	{name: lockKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Pool.Lock }), def: "false",
		doc: "lock the pages of a pool in host memory, so that they are never swapped out; for hosts that swap. If the " +
			"process may not lock that much (`ulimit -l`, CAP_IPC_LOCK), the node does not start and reports what is missing"},
	{name: hugeKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Pool.HugePages }), def: "false",
		doc: "allocate a pool in host memory in huge pages, which must be reserved on the host (`vm.nr_hugepages`): page " +
			"tables are small, first touches are fast, and nothing is swapped out. If there are too few, the node does not " +
			"start and reports how many are missing"},

	{name: "data.copy_threads", kind: integerKind(0, 64, func(d *draft) *uint32 { return &d.cfg.Data.CopyThreads }), def: "0",
		doc: "the number of threads that copy into the pool; 0 is two, or one on a single core"},
	{name: "data.nt_threshold_bytes", kind: sizeKind(0, 1<<40, func(d *draft) *uint64 { return &d.cfg.Data.NonTemporalBytes }),
		def: "0", doc: "shared-memory pushes of at least this size bypass the CPU caches; 0 is 4 MiB"},
	{name: overcommitKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Data.Overcommit }), def: "false",
		doc: "allocate the pools' memory when a page is first touched, and not when the node opens. If no memory is left at " +
			"that time, the kernel kills this process or another"},
	{name: checksumKey, kind: wordKind(func(d *draft) *bool { return &d.cfg.Data.Checksums },
		[]choice[bool]{{"off", false}, {"transfer", true}}, 0, nil), def: "off",
		doc: "`transfer` states a checksum (CRC-32C) of each chunk that this node's engine puts, stores or shares, and compares " +
			"each chunk that arrives with the checksum of its source before the chunk is used: a chunk that differs is a failure " +
			"with the code [`corrupt`](errors.md#corrupt). Set it at both ends. The " +
			"pool must be in host memory; chunks of a sender with `use_layerwise` for a receiver without it have no checksum"},
	{name: keepCorruptKey, kind: pathKind(pemPathLenMax, func(d *draft) *string { return &d.cfg.Data.KeepCorrupt }),
		doc: "the folder to which the first 16 pages without the stated checksum are written, for inspection. They contain KV " +
			"caches; needs `data.checksum: transfer`"},
	{name: "data.tcp_streams", kind: integerKind(0, 64, func(d *draft) *uint32 { return &d.cfg.Data.TCPStreams }), def: "0",
		doc: "the number of TCP streams to one peer; 0 chooses by the number of cores"},
	{name: "data.tcp_host", kind: hostKind(func(d *draft) *string { return &d.cfg.Data.TCPHost }),
		doc: "the host where the TCP plane listens, and which it advertises; `pd_peer_host` if unset"},
	{name: "data.tcp_port", kind: portsKind(func(d *draft) *[]uint16 { return &d.cfg.Data.TCPPorts }),
		doc: "the port of the TCP plane; chosen by the system if unset"},
	{name: "data.shm_dir", kind: pathKind(80, func(d *draft) *string { return &d.cfg.Data.SHMDir }),
		doc: "the directory of the sockets over which shared memory is passed, equal on both ends; needed only for " +
			"containers with separate networks"},

	{name: "recorder.dir", kind: pathKind(pemPathLenMax, func(d *draft) *string { return &d.cfg.Recorder.Dir }),
		doc: "the folder in which the node writes a [recording](operate.md#flight-recorder) of its state machine, a ring " +
			"of files for each run, which `kvferry sim replay --recording` replays exactly; nothing is recorded if unset. The files " +
			"hold the node's key, names of chunks and messages, but no pages; only the user of the process may read them"},
	{name: "recorder.bytes", kind: sizeKind(1<<20, 1<<46, func(d *draft) *uint64 { return &d.cfg.Recorder.Bytes }), def: "256MiB",
		doc: "the size of the files of one run, beyond which the oldest is removed; at least half of it can be replayed at any time. " +
			"Set it to eight times what the state of the node's machine takes, about 250 bytes for each page before compression. " +
			"Nothing removes the files of earlier runs"},
	{name: "recorder.saved", kind: wholeKind(1, 1000, func(d *draft, n uint64) { d.cfg.Recorder.Saved = uint32(n) }), def: "4",
		doc: "the number of saved recordings of one run, each up to `recorder.bytes`, beyond which the oldest is removed. A recording is " +
			"saved on SIGUSR1, on a request (`POST /recording`), after a failed assertion and for a stuck operation"},
	{name: "recorder.stuck_after", kind: durationKind(0, 24*time.Hour, func(d *draft) *time.Duration { return &d.cfg.Recorder.StuckAfter }),
		def: "600",
		doc: "the age, in seconds, at which an operation (`/operations`) counts as stuck, so that the recording is saved; 0 for never. " +
			"Set it to more than the longest timeout of the node"},

	{name: "trace.endpoint", kind: collectorKind(func(d *draft) *string { return &d.cfg.Trace.Endpoint }),
		doc: "the URL of an OpenTelemetry collector, to which the spans of [traced requests](operate.md#traces) are sent by OTLP over " +
			"HTTP, for example `http://127.0.0.1:4318`; if unset, `OTEL_EXPORTER_OTLP_ENDPOINT` says it, and without that nothing is sent"},
	{name: "trace.ratio", kind: ratioKind(func(d *draft) *float64 { return &d.cfg.Trace.Ratio }), def: "0",
		doc: "the share of calls without a trace that begin a trace of their own; a call that comes with a trace is sampled if that is"},

	{name: "log.level", kind: kind{takes: "debug, info, warn or error", read: readLevel}, def: "info",
		doc: "the least severe record that is logged", reloads: true},
	{name: "log.format", kind: wordKind(func(d *draft) *bool { return &d.cfg.Log.JSON },
		[]choice[bool]{{"text", false}, {"json", true}}, 0, nil), def: "text", doc: "the format of a log record: one line of " +
		"text, or of JSON"},
}
