package config

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kvferry/kvferry/protocol"
)

// A key is one row of the table from which files are read, defaults are set and
// docs/configuration.md is written.
type key struct {
	name    string   // at the top of the file; for our own keys, below extra_config.kvferry
	aliases []string // older names that LMCache still reads
	kind    kind
	// def is the default as one would write it, read like any other value; "" is none.
	def string
	doc string // one sentence, Markdown, without a full stop
}

// ownPath returns the whole path of one of our own keys.
func ownPath(name string) string { return "extra_config.kvferry." + name }

// topKeys are all keys at the top of a file whose values are read.
var topKeys = slices.Concat(lmcacheKeys, laterKeys)

// lmcacheKeys are LMCache's keys that this transfer obeys.
var lmcacheKeys = []key{
	{name: "enable_pd", aliases: []string{"enable_xpyd"}, kind: boolean(func(d *draft) *bool { return &d.enablePD }),
		doc: "must be true: kvferry is the transfer between prefill and decode"},
	{name: "pd_role", aliases: []string{"nixl_role"}, kind: oneOf(func(d *draft) *Role { return &d.cfg.Role },
		[]choice[Role]{{"sender", Sender}, {"receiver", Receiver}},
		func(word string) string {
			if word == "both" {
				return refusal + "run one node as sender and one as receiver"
			}
			return ""
		}), doc: "the prefiller is the sender, the decoder the receiver"},
	{name: "transfer_channel", kind: oneOf(func(d *draft) *Channel { return &d.cfg.Channel },
		[]choice[Channel]{{"auto", ChannelAuto}, {"shm", ChannelSHM}, {"tcp", ChannelTCP}}, channelElsewhere),
		def: "auto", doc: "`auto` is shared memory where both nodes are on one host, else TCP"},
	{name: "chunk_size", kind: integer(1, 1<<20, func(d *draft) *uint32 { return &d.cfg.ChunkTokens }),
		def: "256", doc: "tokens of a full chunk; equal on all nodes"},
	{name: "pd_buffer_size", aliases: []string{"nixl_buffer_size"},
		kind: size(1, 1<<46, func(d *draft) *uint64 { return &d.cfg.BufferBytes }),
		doc:  "the page pool, in bytes; rounded **up** to whole pages, as LMCache-Ascend does (upstream rounds down)"},
	{name: "pd_buffer_device", kind: oneOf(func(d *draft) *string { return &d.word }, []choice[string]{{"cpu", "cpu"}},
		func(word string) string {
			if strings.HasPrefix(word, "npu") || strings.HasPrefix(word, "cuda") {
				return refusal + "pages are host memory here; set pd_buffer_device: cpu"
			}
			return ""
		}), doc: "where the pool lies"},
	{name: "pd_peer_host", aliases: []string{"nixl_peer_host"}, kind: host(func(d *draft) *string { return &d.cfg.PeerHost }),
		doc: "what a receiver binds **and** advertises; a sender's name for itself, optional there"},
	{name: "pd_peer_init_port", aliases: []string{"nixl_peer_init_port"},
		kind: ports(func(d *draft) *[]uint16 { return &d.cfg.InitPorts }), doc: "a receiver's handshake port for each rank"},
	{name: "pd_peer_alloc_port", aliases: []string{"nixl_peer_alloc_port"},
		kind: ports(func(d *draft) *[]uint16 { return &d.cfg.AllocPorts }), doc: "a receiver's allocation port for each rank"},
	{name: "pd_proxy_host", aliases: []string{"nixl_proxy_host"}, kind: host(func(d *draft) *string { return &d.cfg.Proxy.Host }),
		doc: "whom a sender tells that a request's last batch has ended"},
	{name: "pd_proxy_port", aliases: []string{"nixl_proxy_port"}, kind: port(func(d *draft) *uint16 { return &d.cfg.Proxy.Port }),
		doc: "its port"},
	{name: "pd_skip_proxy_notification", kind: boolean(func(d *draft) *bool { return &d.skipProxy }), def: "false",
		doc: "tell no proxy; then a sender needs no `pd_proxy_*`"},
	{name: "pd_alloc_fail_backoff_ttl",
		kind: duration(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.Push.AllocFailBackoff }),
		def:  "2.0", doc: "how long a sender leaves a receiver alone that could not allocate; for a receiver, how long an allocation waits for pages"},
	{name: "pd_allocation_timeout_sec",
		kind: duration(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.allocTimeout }),
		doc:  "how long a receiver's allocation waits for pages; `pd_alloc_fail_backoff_ttl` if unset"},
	{name: "pd_shutdown_timeout_sec",
		kind: duration(0, time.Hour, func(d *draft) *time.Duration { return &d.cfg.Push.DrainTimeout }),
		def:  "5.0", doc: "how long a graceful close may take"},
	{name: "pd_max_prefill_len", kind: integer(0, 1<<30, func(d *draft) *uint32 { return &d.cfg.maxPrefillTokens }), def: "0",
		doc: "tokens that the pool must be able to hold, checked at start; 0 checks nothing"},
	{name: "pd_backend_mode", kind: oneOf(func(d *draft) *string { return &d.word },
		[]choice[string]{{"async", ""}, {"sync", ""}}, nil), def: "async",
		doc: "no effect: kvferry has one implementation; what a receiver answers is `extra_config.kvferry.reply_form`"},
	{name: "retrieve_locations", kind: kind{"list of backends", readRetrieveLocations}, doc: "for a receiver only `[PDBackend]`"},
	{name: "store_location", kind: kind{"backend", readStoreLocation}, doc: "for a receiver anything but `PDBackend`"},
}

// ownKeys are kvferry's, below extra_config.kvferry. A dot stands for one more mapping.
var ownKeys = []key{
	{name: "layout.num_layers", kind: integer(1, 1<<16, func(d *draft) *uint32 { return &d.layout.layers }),
		doc: "layers of the model; with the other `layout` keys for a node without an engine, which otherwise says so"},
	{name: "layout.num_kv_heads", kind: integer(1, 1<<16, func(d *draft) *uint32 { return &d.layout.kvHeads }),
		doc: "KV heads of one rank; not with `mla`"},
	{name: "layout.head_size", kind: integer(1, 1<<20, func(d *draft) *uint32 { return &d.layout.headSize }),
		doc: "elements of a head; with `mla`, of the aligned latent head"},
	{name: "layout.dtype", kind: kind{"a dtype such as bfloat16 or half", readDtype}, doc: "type of an element"},
	{name: "layout.mla", kind: boolean(func(d *draft) *bool { return &d.layout.mla }), def: "false",
		doc: "the model keeps one latent head instead of keys and values"},

	{name: "reply_form", kind: oneOf(func(d *draft) *protocol.ReplyForm { return &d.cfg.Push.ReplyForm }, replyForms(), nil),
		def: "ascend", doc: "how a receiver answers: LMCache-Ascend's reply, or one of upstream's revisions"},
	{name: "trust_uncommitted", kind: boolean(func(d *draft) *bool { return &d.cfg.Push.TrustUncommitted }), def: "false",
		doc: "serve chunks of senders that cannot commit, over planes nobody watches; their content is that sender's word"},
	{name: "put_timeout", kind: duration(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.Push.PutTimeout }),
		def: "30", doc: "a put that has not ended by then has failed"},
	{name: "get_timeout", kind: duration(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.Push.GetTimeout }),
		def: "30", doc: "the longest that a get waits for chunks that are on their way"},
	{name: "alloc_timeout", kind: duration(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.ownAllocTimeout }),
		doc: "how long a receiver's allocation waits for pages; before `pd_allocation_timeout_sec`"},
	{name: "claim_ttl", kind: duration(time.Second, 24*time.Hour, func(d *draft) *time.Duration { return &d.cfg.Push.ClaimTTL }),
		def: "60", doc: "how long an \"already sent\" keeps its chunk for the request it was said to"},
	{name: "lease", kind: duration(100*time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.Push.Lease }),
		def: "30", doc: "how long a write grant stands"},
	{name: "peer_share_pct", kind: wholePercent(1, func(d *draft) *uint32 { return &d.cfg.Push.PeerShareBP }),
		def: "50", doc: "the most of the pool that one peer may hold, granted and quarantined pages counted"},

	{name: "link.request_timeout", kind: duration(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.Link.RequestTimeout }),
		def: "10", doc: "one request and its reply; longer than the receiver's allocations wait"},
	{name: "link.backoff_min", kind: duration(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.Link.BackoffMin }),
		def: "50ms", doc: "the first pause before connecting again; it doubles, with jitter"},
	{name: "link.backoff_max", kind: duration(time.Millisecond, time.Hour, func(d *draft) *time.Duration { return &d.cfg.Link.BackoffMax }),
		def: "5", doc: "the longest pause"},

	{name: "tables.peers", kind: integer(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Bounds.Peers }), def: "1024", doc: "peers with a handshake"},
	{name: "tables.conns", kind: integer(1, 1<<17, func(d *draft) *uint32 { return &d.cfg.Bounds.Conns }), def: "4096", doc: "connections"},
	{name: "tables.commands", kind: integer(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Bounds.Commands }), def: "1024", doc: "engine commands in progress"},
	{name: "tables.waiters", kind: integer(1, 1<<16, func(d *draft) *uint32 { return &d.cfg.Bounds.Waiters }), def: "4096", doc: "allocations that wait for pages"},
	{name: "tables.mailbox", kind: integer(16, 1<<20, func(d *draft) *uint32 { return &d.cfg.Bounds.Mailbox }), def: "4096", doc: "inbound messages waiting for the event loop"},

	{name: "limits.message_bytes", kind: size(4<<10, 64<<20, func(d *draft) *uint64 { return &d.messageBytes }), def: "1MiB", doc: "the longest message accepted"},
	{name: "limits.keys_per_batch", kind: integer(1, 1<<16, func(d *draft) *uint32 { return &d.keysPerBatch }), def: "4096", doc: "the most keys of one message"},
	{name: "limits.key_bytes", kind: integer(64, 64<<10, func(d *draft) *uint32 { return &d.keyBytes }), def: "512", doc: "the longest key"},

	{name: "data.copy_threads", kind: integer(0, 64, func(d *draft) *uint32 { return &d.cfg.Data.CopyThreads }), def: "0", doc: "threads that store into the pool; 0 is two, or one on a single core"},
	{name: "data.nt_threshold_bytes", kind: size(0, 1<<40, func(d *draft) *uint64 { return &d.cfg.Data.NonTemporalBytes }), def: "0", doc: "shared-memory pushes from this size on are copied around the caches; 0 is 4 MiB"},
	{name: "data.tcp_streams", kind: integer(0, 64, func(d *draft) *uint32 { return &d.cfg.Data.TCPStreams }), def: "0", doc: "TCP streams to one peer; 0 chooses by the cores"},
	{name: "data.tcp_host", kind: host(func(d *draft) *string { return &d.cfg.Data.TCPHost }), doc: "where the TCP plane listens, and what it advertises; `pd_peer_host` if unset"},
	{name: "data.tcp_port", kind: ports(func(d *draft) *[]uint16 { return &d.cfg.Data.TCPPorts }), doc: "its port for each rank; chosen by the system if unset"},
	{name: "data.shm_dir", kind: path(80, func(d *draft) *string { return &d.cfg.Data.SHMDir }), doc: "folder of the sockets over which shared memory is passed, equal on both ends; only containers that have networks of their own need one"},

	{name: "log.level", kind: kind{"debug, info, warn or error", readLevel}, def: "info", doc: "the least severe record that is logged"},
	{name: "log.format", kind: oneOf(func(d *draft) *bool { return &d.cfg.Log.JSON }, []choice[bool]{{"text", false}, {"json", true}}, nil), def: "text", doc: "one line of text or of JSON a record"},
}

func channelElsewhere(word string) string {
	const instead = "; use auto, shm or tcp"
	switch word {
	case "hccl", "hixl":
		return "not available in this build: it has no Ascend driver" + instead
	case "nixl", "mooncake":
		return "not available in this build: it has no " + word + " plane" + instead
	case "mock":
		return "not available in this build: bytes really move here" + instead
	}
	return ""
}

func replyForms() []choice[protocol.ReplyForm] {
	var forms []choice[protocol.ReplyForm]
	for f := protocol.FormAscend; f.Valid(); f++ {
		forms = append(forms, choice[protocol.ReplyForm]{f.String(), f})
	}
	return forms
}

func readDtype(d *draft, n *yaml.Node) (Code, string) {
	s, isScalar := scalar(n)
	if !isScalar {
		return Type, "write one dtype, such as bfloat16"
	}
	dtype, known := protocol.ParseDtype([]byte(s))
	if !known {
		return Range, "use a dtype that LMCache names, such as bfloat16, half, float, int8 or fp8_e4m3fn"
	}
	d.layout.dtype = dtype
	return ok, ""
}

func readLevel(d *draft, n *yaml.Node) (Code, string) {
	s, isScalar := scalar(n)
	switch s {
	case "debug", "info", "warn", "error":
	default:
		isScalar = false
	}
	if !isScalar {
		return Range, "use debug, info, warn or error"
	}
	if err := d.cfg.Log.Level.UnmarshalText([]byte(s)); err != nil {
		return Range, err.Error()
	}
	return ok, ""
}

func readRetrieveLocations(d *draft, n *yaml.Node) (Code, string) {
	if n.Kind != yaml.SequenceNode {
		return Type, "write a list of backends: [PDBackend]"
	}
	d.retrievesElsewhere = len(n.Content) != 1 || n.Content[0].Value != "PDBackend"
	return ok, ""
}

func readStoreLocation(d *draft, n *yaml.Node) (Code, string) {
	s, isScalar := scalar(n)
	if !isScalar {
		return Type, "write one backend's name"
	}
	d.storesHere = s == "PDBackend"
	return ok, ""
}
