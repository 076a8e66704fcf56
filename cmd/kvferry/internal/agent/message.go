// Package agent lets a program drive a node over two pipes, with one JSON object per line. The agent plays the part of
// the engine: the agent computes the KV bytes of each chunk from the chunk's key, so that the agent at the receiver can
// verify the bytes. The demo and the tests drive their nodes this way, and operators can use it to try out a node.
//
// Each request has an ID, which the response repeats. For example, a put pushes a chunk to a peer, and the get on that
// peer verifies the chunk; the following pairs of lines show a fetch, a store, a bring, a lookup and a layerwise
// prefill:
//
//	{"id":1,"op":"put","peer":{"host":"127.0.0.1","init_port":7300,"alloc_port":7400},
//	 "request":"r1","keys":["m@1@0@a1@half"],"last":true}
//	{"id":1,"code":"ok","sent":1,"bytes":1048576}
//	{"id":2,"op":"get","keys":["m@1@0@a1@half"],"wait_ms":1000}
//	{"id":2,"code":"ok","hits":1,"bytes":1048576}
//	{"id":3,"op":"fetch","request":"r2","keys":["m@1@0@a2@half"],"wait_ms":1000}
//	{"id":3,"code":"ok","hits":1,"bytes":1048576}
//	{"id":4,"op":"store","keys":["m@1@0@a3@half"]}
//	{"id":4,"code":"ok"}
//	{"id":5,"op":"bring","request":"r3","keys":["m@1@0@a3@half"]}
//	{"id":5,"code":"ok","hits":1,"bytes":1048576}
//	{"id":6,"op":"lookup","keys":["m@1@0@a3@half"]}
//	{"id":6,"code":"ok","hits":1,"elsewhere":1}
//	{"id":7,"op":"prefill","peer":{"host":"127.0.0.1","init_port":7300,"alloc_port":7400},"request":"r4",
//	 "keys":["m@1@0@a4@half"],"last_tokens":9,"prefill":{"step_tokens":512,"token_ns":1000}}
//	{"id":7,"code":"ok","sent":1,"saved":4,"bytes":36864}
//
// Responses are written in the order in which the requests end. The agent ends when its input ends.
package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	goruntime "runtime"
)

// A Request is one line of the input.
type Request struct {
	ID uint64 `json:"id"` // repeated in the response
	// Op is "put", "prefill", "recall", "get", "fetch", "abandon", "stats" or "drain". A node that shares its cache
	// also accepts "store", "lookup" and "bring"; "bring" is a get that also reads chunks from peers. A node with
	// registered blocks of the engine accepts only "finish", "register", "cancel", "abort", "stats" and "drain".
	Op      string   `json:"op"`
	Peer    *Peer    `json:"peer,omitempty"` // put, recall: the peer; bring: the only peer that is queried
	Request string   `json:"request,omitempty"`
	Keys    []string `json:"keys,omitempty"`
	// LastTokens is the number of tokens in the last key's chunk; 0 means a full chunk.
	LastTokens int  `json:"last_tokens,omitempty"`
	Last       bool `json:"last,omitempty"` // put: this batch is the last batch of the request
	// Fetch makes a bring leave the chunks with the peers until the engine fetches them through the staging pages.
	Fetch  bool `json:"fetch,omitempty"`
	WaitMS int  `json:"wait_ms,omitempty"` // the longest wait in milliseconds; 0 in a put means the configured wait
	// Layered makes a get return the chunks of a layerwise push, one page per layer.
	Layered bool `json:"layered,omitempty"`
	// Parent is the traceparent header of the request (put, get, fetch), for nodes that export traces.
	Parent     string      `json:"traceparent,omitempty"`
	Prefill    *Prefill    `json:"prefill,omitempty"`
	Registered *Registered `json:"registered,omitempty"`
}

// A Prefill describes how the agent computes the keys of a request with use_layerwise: in steps of StepTokens tokens.
// In each step and for each layer, the agent spins for the time that TokenNanos gives and then saves the layer.
type Prefill struct {
	// Skip is the number of tokens at the start of the request that are neither computed nor sent: the receiver has
	// them or does not want them.
	Skip       int   `json:"skip,omitempty"`
	StepTokens int   `json:"step_tokens"`
	TokenNanos int64 `json:"token_ns,omitempty"` // nanoseconds to compute one layer of one token
	// PreemptAfter is the number of computed layers after which the request is preempted once and computed again from
	// its start; 0 means that the request is not preempted.
	PreemptAfter int `json:"preempt_after,omitempty"`
}

// A Peer is the host and the ports on which a receiver listens.
type Peer struct {
	Host      string `json:"host"`
	InitPort  uint16 `json:"init_port"`
	AllocPort uint16 `json:"alloc_port"`
	QueryPort uint16 `json:"query_port,omitempty"` // only in a recall
}

// A Response is one line of the output. The first response has no ID and reports that the node serves, or why it does
// not.
type Response struct {
	ID uint64 `json:"id,omitempty"`
	// Code is the name of the effects.Code with which the request ended.
	Code    string `json:"code"`
	Error   string `json:"error,omitempty"`
	Sent    int    `json:"sent,omitempty"`    // put, prefill: chunks written; finish: pages
	Skipped int    `json:"skipped,omitempty"` // put: chunks that the peer already had
	Hits    int    `json:"hits,omitempty"`    // recall, get, fetch, bring, lookup: chunks found; register: pages
	// Elsewhere is the number of chunks that a peer has, in a lookup.
	Elsewhere    int   `json:"elsewhere,omitempty"`
	Bytes        int64 `json:"bytes,omitempty"`     // bytes written by a put; bytes verified by a get
	Wrong        int64 `json:"wrong,omitempty"`     // of Bytes: bytes that differ from the key's content
	Saved        int   `json:"saved,omitempty"`     // prefill: saved layers
	MicrosSpun   int64 `json:"spun_us,omitempty"`   // prefill: microseconds spent on computing
	MicrosSaving int64 `json:"saving_us,omitempty"` // prefill: microseconds in all calls of SaveLayer
	Preempted    int   `json:"preempted,omitempty"` // prefill: number of preemptions
	// MicrosTransfer is the duration in microseconds of the put or the get alone, without making or checking the
	// content. For a fetch it includes the check, because the check is the engine's use of the chunks. For a prefill it
	// is the time from the save of the last layer to the end of the request.
	MicrosTransfer int64  `json:"us,omitempty"`
	Stats          *Stats `json:"stats,omitempty"`
}

// Stats counts the pages, requests and other resources of a node. Unless a field says otherwise, it is the count at
// this moment.
type Stats struct {
	PagesTotal       int `json:"pages_total"`
	PagesFree        int `json:"pages_free"`
	PagesGranted     int `json:"pages_granted"`
	PagesQuarantined int `json:"pages_quarantined"`
	PagesLeased      int `json:"pages_leased"`
	PagesLeasedMax   int `json:"pages_leased_max"` // the maximum since the start
	Puts             int `json:"puts"`
	Gets             int `json:"gets"`
	Grants           int `json:"grants"`
	PendingRequests  int `json:"pending_requests"`
	Reserves         int `json:"reserves"`
	Claims           int `json:"claims"`
	Entries          int `json:"entries"`
	Fills            int `json:"fills"`
	OutboundPeers    int `json:"outbound_peers"`
	ArenaTotal       int `json:"arena_total"` // the arena of copies that peers read
	ArenaFree        int `json:"arena_free"`
	DeviceTotal      int `json:"device_total"` // the device pool of a node that shares, its second pool
	DeviceFree       int `json:"device_free"`
	Pinned           int `json:"pinned"`               // pages pinned for peers
	Goroutines       int `json:"goroutines,omitempty"` // of the process
	Offers           int `json:"offers"`               // offers of a delayed pull that are deferred until the engine fetches
	Fetches          int `json:"fetches"`
	Staged           int `json:"staged"`      // staging pages that fetches read into
	StagedMax        int `json:"staged_max"`  // the maximum since the start
	Brings           int `json:"brings"`      // gets and fetches of shared chunks, finished or not
	Prefills         int `json:"prefills"`    // layerwise requests
	Bundles          int `json:"bundles"`     // chunks whose layers are arriving
	ChunkPages       int `json:"chunk_pages"` // pages per chunk
	Receptions       int `json:"receptions"`  // receptions into the engine's own registered blocks
	LeasedBatches    int `json:"leased_batches"`
	Registrations    int `json:"registrations"`
	// Brought is the number of requests for a peer's chunks since the start, by the name of the code with which the
	// request ended.
	Brought map[string]uint64 `json:"brought,omitempty"`

	Incarnation string `json:"incarnation"`
	Links       *Links `json:"links,omitempty"` // only of a node on a leased plane
}

// Links counts the communicators of a node on an NPU, or the pairs of agents over libnixl, since the node's start.
type Links struct {
	Formed   uint64 `json:"formed"`   // links formed to reach peers
	Fenced   uint64 `json:"fenced"`   // of Formed: epochs abandoned before their link was
	Expelled uint64 `json:"expelled"` // links that peers had formed, abandoned to take a page back
}

func newStats(n *runtime.Node) *Stats {
	s := n.Stats()
	id := n.Incarnation()
	brought := map[string]uint64{}
	for _, c := range n.FactCounts() {
		if c.Fact == effects.FactBrought {
			brought[c.Code.String()] = c.Times
		}
	}
	return &Stats{
		Brings: s.Brings, Brought: brought, Prefills: s.Layers, Bundles: s.Bundles, ChunkPages: n.Layers(),
		Receptions: s.Receptions, LeasedBatches: s.LeasedBatches, Registrations: s.Registrations,
		PagesTotal: s.PagesTotal, PagesFree: s.PagesFree, PagesGranted: s.PagesGranted, PagesQuarantined: s.PagesQuarantined,
		PagesLeased: s.PagesLeased, PagesLeasedMax: s.PagesLeasedMax,
		Puts: s.Puts, Gets: s.Gets, Grants: s.Grants, PendingRequests: s.PendingRequests, Reserves: s.Reserves, Claims: s.Claims,
		ArenaTotal: s.ArenaTotal, ArenaFree: s.ArenaFree, DeviceTotal: s.DeviceTotal, DeviceFree: s.DeviceFree,
		Goroutines: goruntime.NumGoroutine(),
		Pinned:     s.Pinned, Offers: s.Offers, Fetches: s.Fetches, Staged: s.Staged,
		StagedMax: s.StagedMax,
		Entries:   s.Entries, Fills: s.Fills, OutboundPeers: s.OutboundPeers, Incarnation: formatHex(id[:]),
	}
}
