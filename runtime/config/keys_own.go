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
		doc: "how a receiver answers a push: LMCache-Ascend's reply, or one of upstream's revisions; senders read all"},
	{name: "trust_uncommitted",
		kind: offSwitchKind("every plane asks a sender for its proof, so no byte of one without kvferry's extensions arrives, " +
			"and a chunk that is " +
			"believed without any would be what the page held before; set trust_uncommitted: false, and run kvferry at the " +
			"sender"), def: "false",
		doc: "nothing else is taken: no plane here lets a sender write that cannot commit"},
	{name: "put_timeout",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.PutTimeout }),
		doc:  "a put that has not ended by then has failed"},
	{name: "get_timeout",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.GetWaitMax }), def: "30",
		doc: "the longest that a get waits for chunks that are on their way"},
	{name: "alloc_timeout",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.ownAllocTimeout }),
		doc:  "overrides `pd_allocation_timeout_sec`"},
	{name: "retention",
		kind: durationKind(time.Second, 24*time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.ClaimTTL }), def: "480",
		doc: "how long a receiver keeps a chunk for its request; set it longer than requests wait in the decode engine's " +
			"queue. Then it is gone, and a get says `lapsed`"},
	{name: "store.retention", kind: wordKind(func(d *draft) *store.Retention { return &d.cfg.Machine.Retention },
		[]choice[store.Retention]{{"consume", store.Consume}, {"cache", store.Cache}}, 0, nil), def: "consume",
		doc: "a chunk that nobody expects goes, or stays while there is room; `cache` if unset with `pd_bidirectional`"},
	{name: "recall.timeout",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.RecallTimeout }),
		doc:  "a sender's recall that has not ended by then has failed; what is not there is computed"},
	{name: "lease",
		kind: durationKind(100*time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.Lease }),
		doc:  "how long a write grant stands"},
	{name: "lease_guard",
		kind:    durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.LeaseGuard }),
		derived: true,
		doc: "how long before a grant's end its holder starts nothing more under it, shorter than `lease` and than a " +
			"sender's `pd_pull_pending_ttl`; 1 s if unset, at most a quarter of `lease`"},
	{name: "clock_drift_ppm", kind: integerKind(1, 100_000, func(d *draft) *uint32 { return &d.cfg.Machine.DriftPPM }),
		doc: "how far the clocks of two nodes may run apart, in millionths; a reader on an NPU, where time alone ends an " +
			"offer, stops so much earlier"},
	{name: "request_ttl",
		kind: durationKind(time.Second, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.RequestTTL }),
		doc: "how long a sender remembers a request of which nothing more comes; set it longer than the pauses " +
			"between batches of one prefill"},
	{name: "abandon_ttl",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.AbandonTTL }),
		doc:  "how long a receiver refuses what still comes for a request that its engine has abandoned"},
	{name: "peer_share_pct", kind: percentKind(1, func(d *draft) *uint32 { return &d.cfg.Machine.PeerSharePct }), def: "50",
		doc: "one peer's most of the pool; with others, what landed counts"},
	{name: "engine_share_pct", kind: percentKind(1, func(d *draft) *uint32 { return &d.cfg.Machine.EngineSharePct }),
		doc: "with `pd_role: both`, the engine's most of the pool"},

	{name: "pull.staging_bytes", kind: sizeKind(1, 1<<46, func(d *draft) *uint64 { return &d.cfg.Pull.StagingBytes }),
		doc: "the part of a receiver's pool that all its fetches read into, with `pd_delay_pull`; a batch has up to half " +
			"of its whole pages, and with one page nothing overlaps; an eighth of the pool if unset, at least two pages"},
	{name: "pull.fetch_timeout", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *effects.Duration { return &d.cfg.Machine.FetchTimeout }),
		doc: "the longest that a receiver's fetch takes: waiting, reading and scattering"},
	{name: "pull.read_timeout", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *effects.Duration { return &d.cfg.Machine.ReadTimeout }),
		doc: "the longest that a receiver reads one offer, where it reads as offers come"},
	{name: "pull.lead_min",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.LeadMin }),
		doc:  "with `pd_delay_pull`, a receiver refuses offers that stand for less than that after its `lease_guard`"},
	{name: "pull.loan_max",
		kind: durationKind(time.Second, 240*time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.ReadLeaseMax }),
		doc: "the longest that a sender's offer stands, renewals included, at least `pd_pull_pending_ttl`; ten times that " +
			"if unset"},

	{name: "link.request_timeout", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *effects.Duration { return &d.cfg.Machine.ReplyTimeout }), def: "10",
		doc: "one request and its reply; longer than the receiver's allocations wait"},
	{name: "link.window", kind: integerKind(1, 16, func(d *draft) *uint16 { return &d.cfg.Machine.Window }), def: "16",
		doc: "requests in flight to one alloc port; the smaller of both ends' counts"},
	{name: "link.carry_bytes", kind: sizeKind(0, 32<<20, func(d *draft) *uint32 { return &d.cfg.Machine.Carries }),
		def: "64KiB", doc: "a put of no more bytes goes with the question for its pages, in one round trip instead of two and " +
			"a transfer, where both ends have as much; at most half of `limits.message_bytes`; 0: none does. Not of a pool " +
			"that a device reads"},
	{name: "link.backoff_min",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.BackoffMin }),
		doc:  "the first pause before connecting again; it doubles, with jitter"},
	{name: "link.backoff_max",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *effects.Duration { return &d.cfg.Machine.BackoffMax }),
		doc:  "the longest pause"},
	{name: "link.unfit_backoff", kind: durationKind(time.Second, 24*time.Hour,
		func(d *draft) *effects.Duration { return &d.cfg.Machine.UnfitBackoff }),
		doc: "the pause before a peer of another kind is asked again"},
	{name: "link.handshake_timeout", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *time.Duration { return &d.cfg.Link.HandshakeTimeout }),
		def: "10", doc: "how long a peer's connection may take to shake hands; then it is closed"},
	{name: "link.message_timeout", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *time.Duration { return &d.cfg.Link.MessageTimeout }),
		def: "30", doc: "how long one message may take from its first byte to its last; then its connection is closed"},
	{name: "link.peer_names", kind: boolKind(func(d *draft) *bool { return &d.cfg.Link.PeerNames }),
		def: "false",
		doc: "senders of pull mode may say by name where they take messages (`pd_peer_host`); else an offer that does is " +
			"refused (`localhost` is none), because whom a name makes this node ask is the peer's choice"},
	{name: "link.name_timeout", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *time.Duration { return &d.cfg.Link.NameTimeout }),
		def: "3", doc: "how long a name server may take"},
	{name: "link.name_ttl",
		kind: durationKind(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.Link.NameTTL }),
		def:  "30", doc: "how long the addresses of a name are believed; if nobody listens there, they are asked for again " +
			"at once"},
	{name: "link.name_negative_ttl", kind: durationKind(time.Millisecond, time.Hour,
		func(d *draft) *time.Duration { return &d.cfg.Link.NameNegativeTTL }),
		def: "1", doc: "how long it is believed that a name has no address"},

	{name: "poll.us", kind: microsecondsKind(0, 1_000_000, func(d *draft) *time.Duration { return &d.cfg.Poll }), def: "0",
		doc: "for how many microseconds after each control message, or answer to an engine, this node polls for what comes " +
			"next before it sleeps, where that tends to come in time: [small puts take a fraction of the " +
			"time](benchmarks.md#small-puts), and a core is busy, which other processes may have; 0: it sleeps at once. Not " +
			"over `libzmq`"},

	{name: "control.transport", kind: wordKind(func(d *draft) *Control { return &d.cfg.Control },
		[]choice[Control]{{"zmq", ControlZMQ}, {"libzmq", ControlLibZMQ}}, 0, nil), def: "zmq",
		doc: "what carries control messages: kvferry's own implementation of ZeroMQ's wire protocol, or `libzmq`, which " +
			"needs a build with `-tags libzmq` and [bounds less](safety.md#control-over-libzmq) of what an unknown connection " +
			"takes; ends may differ"},

	{name: "tables.peers", kind: integerKind(1, connsMax, func(d *draft) *uint32 { return &d.cfg.Machine.PeersMax }), def: "1024",
		doc: "peers with a handshake"},
	{name: "tables.conns", kind: integerKind(1, connsMax, func(d *draft) *uint32 { return &d.cfg.Bounds.Conns }),
		def: "4096", doc: "connections to peers"},
	{name: "tables.guests", kind: integerKind(0, 1<<16, func(d *draft) *uint32 { return &d.cfg.Bounds.Inbound }), def: "0",
		doc: "connections of peers; 0 is 8192, but at most half of the files that the process may open"},
	{name: "tables.guests_per_address",
		kind: integerKind(0, 1<<16, func(d *draft) *uint32 { return &d.cfg.Bounds.InboundPerAddress }), def: "0",
		doc: "those of one address; 0 is seven eighths of all"},
	{name: "tables.strangers", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Bounds.PendingHandshakes }),
		def: "256",
		doc: "those of one address that have not shaken hands, on the control plane and on each data plane"},
	{name: "tables.commands", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Bounds.Commands }),
		def: "1024", doc: "engine commands in progress"},
	{name: "tables.recalls", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Machine.RecallsMax }),
		doc: "recalls of a sender in progress, and prefixes that a receiver has out for senders to read"},
	{name: "tables.waiters", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Machine.WaitersMax }), def: "4096",
		doc: "allocations that wait for pages; one peer's are never more than it leaves to others"},
	{name: "tables.waiting_bytes",
		kind: sizeKind(64<<10, 64<<30, func(d *draft) *uint64 { return &d.cfg.Machine.WaitingBytes }),
		doc:  "messages of those; one peer's likewise"},
	{name: "tables.mailbox", kind: integerKind(16, 1<<20, func(d *draft) *uint32 { return &d.cfg.Bounds.Mailbox }),
		def: "4096", doc: "inbound messages waiting for the event loop"},

	{name: messageBytesKey, kind: sizeKind(4<<10, 64<<20, func(d *draft) *uint64 { return &d.messageBytes }),
		def: "1MiB", doc: "the longest message accepted; if unset, with `register.engine_id` the longest registration"},
	{name: keysPerBatchKey, kind: integerKind(1, pagesRegisteredMax, func(d *draft) *uint32 { return &d.keysPerBatch }),
		def: "4096",
		doc: "the most keys of one message: what an engine asks beyond is done in parts, what a peer asks beyond is " +
			"refused; at most 65536. With `register.engine_id` pages of one registration, and 524288 if unset"},
	{name: "limits.key_bytes", kind: integerKind(64, 64<<10, func(d *draft) *uint32 { return &d.keyBytes }), def: "512",
		doc: "the longest key"},
	{name: "limits.request_bytes", kind: integerKind(16, 1<<10, func(d *draft) *uint32 { return &d.cfg.Machine.RequestIDMax }),
		doc: "the longest request id that a proxy is told"},
	{name: "limits.rows_per_step", kind: integerKind(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Machine.Tuning.SweepRows }),
		doc: "what one step of the node ends where one event ends more: a drain, a lost peer, an abandoned " +
			"request. The rest is the next steps', and messages are taken in between"},

	{name: lockKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Pool.Lock }), def: "false",
		doc: "lock the pages of a pool in host memory, so that they are never swapped out; for hosts that swap. Where the " +
			"process may not lock as much (`ulimit -l`, CAP_IPC_LOCK) the node does not start, and says what is missing"},
	{name: hugeKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Pool.HugePages }), def: "false",
		doc: "have the pages of a pool in host memory lie in huge pages, which the host must have reserved " +
			"(`vm.nr_hugepages`): page tables are small, first touches fast, and nothing is swapped out. Where there are not " +
			"enough the node does not start, and says how many are missing"},

	{name: "data.copy_threads", kind: integerKind(0, 64, func(d *draft) *uint32 { return &d.cfg.Data.CopyThreads }), def: "0",
		doc: "threads that store into the pool; 0 is two, or one on a single core"},
	{name: "data.nt_threshold_bytes", kind: sizeKind(0, 1<<40, func(d *draft) *uint64 { return &d.cfg.Data.NonTemporalBytes }),
		def: "0", doc: "shared-memory pushes from this size on are copied around the caches; 0 is 4 MiB"},
	{name: overcommitKey, kind: boolKind(func(d *draft) *bool { return &d.cfg.Data.Overcommit }), def: "false",
		doc: "take the pools' memory when a page is first touched, and not when the node opens. If there is none at a " +
			"touch, the kernel kills the process, or another"},
	{name: "data.tcp_streams", kind: integerKind(0, 64, func(d *draft) *uint32 { return &d.cfg.Data.TCPStreams }), def: "0",
		doc: "TCP streams to one peer; 0 chooses by the cores"},
	{name: "data.tcp_host", kind: hostKind(func(d *draft) *string { return &d.cfg.Data.TCPHost }),
		doc: "where the TCP plane listens, and what it advertises; `pd_peer_host` if unset"},
	{name: "data.tcp_port", kind: portsKind(func(d *draft) *[]uint16 { return &d.cfg.Data.TCPPorts }),
		doc: "its port; chosen by the system if unset"},
	{name: "data.shm_dir", kind: pathKind(80, func(d *draft) *string { return &d.cfg.Data.SHMDir }),
		doc: "folder of the sockets over which shared memory is passed, equal on both ends; only containers with networks " +
			"of their own need one"},

	{name: "log.level", kind: kind{takes: "debug, info, warn or error", read: readLevel}, def: "info",
		doc: "the least severe record that is logged"},
	{name: "log.format", kind: wordKind(func(d *draft) *bool { return &d.cfg.Log.JSON },
		[]choice[bool]{{"text", false}, {"json", true}}, 0, nil), def: "text", doc: "one line of text or of JSON a record"},
}
