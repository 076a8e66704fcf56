// Package agent lets another program drive a node over two pipes, one JSON object a line: it plays the
// part of the engine, with KV bytes that follow from their keys.
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
// Requests are answered in the order in which they end. The end of the input ends the agent.
package agent

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// A Request is one line of the input.
type Request struct {
	ID uint64 `json:"id"` // repeated in the answer
	// Op is "put", "prefill", "recall", "get", "fetch", "abandon", "stats" or "drain"; of a node that shares also "store",
	// "lookup", and "bring", which gets what peers have as well; of one whose engine's own blocks are registered only
	// "finish", "register", "cancel", "abort", "stats" and "drain".
	Op      string   `json:"op"`
	Peer    *Peer    `json:"peer,omitempty"` // of a put or a recall; of a bring who alone is asked
	Request string   `json:"request,omitempty"`
	Keys    []string `json:"keys,omitempty"`
	// LastTokens is how many tokens the last key's chunk holds; 0 is a full chunk.
	LastTokens int  `json:"last_tokens,omitempty"`
	Last       bool `json:"last,omitempty"` // put: no batch of this request follows
	// bring: through the pages of fetches, from where the chunks stay until then
	Fetch  bool `json:"fetch,omitempty"`
	WaitMS int  `json:"wait_ms,omitempty"` // longest wait; 0 of a put is the configured one
	// Layered is a get of what came layer by layer.
	Layered    bool        `json:"layered,omitempty"`
	Prefill    *Prefill    `json:"prefill,omitempty"`
	Registered *Registered `json:"registered,omitempty"`
}

// A Prefill is how the keys of a request are computed (use_layerwise): in steps of so many tokens, each layer of which
// spins for a while and is then saved.
type Prefill struct {
	Skip       int   `json:"skip,omitempty"` // tokens at its start that are there already
	StepTokens int   `json:"step_tokens"`
	TokenNanos int64 `json:"token_ns,omitempty"` // of one layer of one token
	// PreemptAfter is how many layers are computed until it is preempted once, and begins again; 0: it is not.
	PreemptAfter int `json:"preempt_after,omitempty"`
}

// Peer is where a receiver listens.
type Peer struct {
	Host      string `json:"host"`
	InitPort  uint16 `json:"init_port"`
	AllocPort uint16 `json:"alloc_port"`
	QueryPort uint16 `json:"query_port,omitempty"` // of a recall
}

// A Response is one line of the output. The first has no ID and says that the node serves.
type Response struct {
	ID uint64 `json:"id,omitempty"`
	// Code is the name of an effects.Code.
	Code    string `json:"code"`
	Error   string `json:"error,omitempty"`
	Sent    int    `json:"sent,omitempty"`    // put: chunks written
	Skipped int    `json:"skipped,omitempty"` // put: chunks that the peer had
	Hits    int    `json:"hits,omitempty"`    // recall, get, fetch, bring, lookup: chunks that were there
	// Elsewhere is how many chunks one other node has: lookup.
	Elsewhere    int   `json:"elsewhere,omitempty"`
	Bytes        int64 `json:"bytes,omitempty"`     // put: written; of what was there verified
	Wrong        int64 `json:"wrong,omitempty"`     // of these, those that are not the key's content
	Saved        int   `json:"saved,omitempty"`     // prefill: layers
	MicrosSpun   int64 `json:"spun_us,omitempty"`   // prefill: computed
	MicrosSaving int64 `json:"saving_us,omitempty"` // prefill: in all calls of SaveLayer
	Preempted    int   `json:"preempted,omitempty"` // prefill
	// MicrosTransfer is how long the put or the get alone took, without making or checking content; of a fetch with
	// checking it, which is what its engine does with chunks; of a prefill what was left when the last layer was saved.
	MicrosTransfer int64  `json:"us,omitempty"`
	Stats          *Stats `json:"stats,omitempty"`
}

// Stats is what a node holds.
type Stats struct {
	PagesTotal       int `json:"pages_total"`
	PagesFree        int `json:"pages_free"`
	PagesGranted     int `json:"pages_granted"`
	PagesQuarantined int `json:"pages_quarantined"`
	PagesLent        int `json:"pages_lent"`
	PagesLentMost    int `json:"pages_lent_most"` // since the start
	Puts             int `json:"puts"`
	Gets             int `json:"gets"`
	Grants           int `json:"grants"`
	Waiters          int `json:"waiters"`
	Reserves         int `json:"reserves"`
	Claims           int `json:"claims"`
	Entries          int `json:"entries"`
	Fills            int `json:"fills"`
	Peers            int `json:"peers"`
	ArenaTotal       int `json:"arena_total"` // of what peers read copies in
	ArenaFree        int `json:"arena_free"`
	DeviceTotal      int `json:"device_total"` // of the second pool of who shares
	DeviceFree       int `json:"device_free"`
	Pinned           int `json:"pinned"` // pages for peers
	Offers           int `json:"offers"` // delayed pull
	Fetches          int `json:"fetches"`
	Staged           int `json:"staged"`      // pages that fetches read into
	StagedMost       int `json:"staged_most"` // since the start
	Brings           int `json:"brings"`      // of shared chunks, over or not
	Prefills         int `json:"prefills"`    // requests that go layer by layer
	Bundles          int `json:"bundles"`     // chunks of which layers are coming
	ChunkPages       int `json:"chunk_pages"` // pages that each chunk has
	Receptions       int `json:"receptions"`  // of blocks that are the engine's own
	Lent             int `json:"lent"`
	Registrations    int `json:"registrations"`
	// Brought is how often a peer was asked for chunks since the start, by the name of the code that it ended with.
	Brought map[string]uint64 `json:"brought,omitempty"`

	Incarnation string `json:"incarnation"`
	Links       *Links `json:"links,omitempty"` // of a node on a leased plane
}

// Links is what became of the communicators of a node on an NPU, or of pairs of agents over libnixl, since its start.
type Links struct {
	Formed   uint64 `json:"formed"`   // to reach peers
	Fenced   uint64 `json:"fenced"`   // of those, given up before their link was
	Expelled uint64 `json:"expelled"` // that peers had formed, given up to take a page back
}

func statsOf(n *runtime.Node) *Stats {
	s := n.Stats()
	id := n.Incarnation()
	brought := map[string]uint64{}
	for _, c := range n.Counts() {
		if c.Fact == effects.FactBrought {
			brought[c.Code.String()] = c.Times
		}
	}
	return &Stats{
		Brings: s.Brings, Brought: brought, Prefills: s.Layers, Bundles: s.Bundles, ChunkPages: n.Layers(),
		Receptions: s.Receptions, Lent: s.Lent, Registrations: s.Registrations,
		PagesTotal: s.PagesTotal, PagesFree: s.PagesFree, PagesGranted: s.PagesGranted, PagesQuarantined: s.PagesQuarantined,
		PagesLent: s.PagesLent, PagesLentMost: s.PagesLentMost,
		Puts: s.Puts, Gets: s.Gets, Grants: s.Grants, Waiters: s.Waiters, Reserves: s.Reserves, Claims: s.Claims,
		ArenaTotal: s.ArenaTotal, ArenaFree: s.ArenaFree, DeviceTotal: s.DeviceTotal, DeviceFree: s.DeviceFree,
		Pinned: s.Pinned, Offers: s.Offers, Fetches: s.Fetches, Staged: s.Staged,
		StagedMost: s.StagedMost,
		Entries:    s.Entries, Fills: s.Fills, Peers: s.Peers, Incarnation: hexOf(id[:]),
	}
}
