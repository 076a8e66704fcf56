// Package plan describes a simulated run as data. The package contains the following:
//
//   - [Plan], everything that decides a run. A plan is read and written as YAML, and [Plan.Check] reports every field
//     whose value is wrong.
//   - [Fault], the kinds of faults, and [Strike], a single occurrence of a fault that is drawn during the run.
//   - [Subject], the names of the things that draws are about. These names do not change when something else is removed
//     from a plan.
//
// A caller may rely on the following: a plan that was parsed or checked can be run; a plan that was written parses as
// the same plan; and a field that a plan leaves out has its value in [New].
//
// For example, this plan has one prefill (n0) and one decode (n1), which crashes:
//
//	version: 1
//	seed: 7
//	jobs:
//	  - {at: 10ms, request: 0, from: n0, to: n1, keys: [1, 2, 100], batch: 2}
//	faults_end: 1s
//	faults:
//	  - {at: 5ms, fault: crash, node: n1, when: after Grant}
//
// At 10 ms the engine of n0 begins to put the chunks 1 and 2, then chunk 100. The allocation request arrives at n1,
// whose machine emits a Grant and a Reply in one step. The crash has waited for a Grant since 5 ms, so n1 dies after
// the Grant and before the Reply. The put of n0 must nevertheless have exactly one outcome by its deadline (L1). All
// other details, such as how long each message takes, are drawn from the seed.
package plan

import "time"

// Version is the version of the plan format. A file of another version is refused.
const Version = 1

// A Plan is everything that decides a run: the nodes, the commands of the engines, and what goes wrong and when. Expand
// of package sim draws a plan from a seed. A plan can also be read from a file, be written by hand, or come from a
// generator. The plan leaves open only draws that are keyed by Seed and by their subject, such as how long one message
// takes. Removing something from a plan therefore leaves the rest of the run unchanged as far as possible.
//
// Durations are simulated time. Nodes are numbered from n0: first the nodes that only send, then those that send and
// receive, then those that only receive.
type Plan struct {
	Version int `yaml:"version"`
	// Defect describes, in a sentence, the defect for which a plan is kept, and Property is the property that it broke
	// then. Reaches lists the coverage marks that its run reached when it was kept; a plan that no longer reaches them
	// is stale.
	Defect   string   `yaml:"defect,omitempty"`
	Property string   `yaml:"property,omitempty"`
	Reaches  []string `yaml:"reaches,omitempty"`

	Seed     uint64   `yaml:"seed"`
	Profile  string   `yaml:"profile,omitempty"` // from which it was drawn; for the reader only
	Topology Topology `yaml:"topology"`
	Timeouts Timeouts `yaml:"timeouts"`
	Bounds   Bounds   `yaml:"bounds"`
	Delays   Delays   `yaml:"delays"`
	Tuning   Tuning   `yaml:"tuning,omitempty"`

	Jobs []Job `yaml:"jobs"`
	// System is the name of the system that the plan is for; empty means PD. Items are the commands of the engines of
	// users' systems.
	System string `yaml:"system,omitempty"`
	Items  []Item `yaml:"items,omitempty"`

	// FaultsEnd is the instant at which everything heals. No fault strikes after this instant.
	FaultsEnd time.Duration `yaml:"faults_end"`
	// Faults are the scheduled faults.
	Faults []ScheduledFault `yaml:"faults,omitempty"`
	// Rates are the rates of the faults that are not scheduled, in strikes per thousand occasions.
	Rates map[Fault]int `yaml:"rates,omitempty"`
	// Strikes are single occasions at which a fault strikes whatever the rates say, and Spared are occasions at which a
	// fault does not strike. A recorded run lists all its strikes here and has no rates.
	Strikes []Strike `yaml:"strikes,omitempty"`
	Spared  []Strike `yaml:"spared,omitempty"`
}

// New returns a plan with one sender and one receiver, ample bounds, short timeouts, no jobs and no faults. Plans
// written by hand start from this plan, and a field that a file leaves out has the value in this plan. The values are
// part of the format.
func New() Plan {
	const ms = time.Millisecond
	return Plan{
		Version:  Version,
		Topology: Topology{Senders: 1, Receivers: 1, SenderPages: 16, ReceiverPages: 16},
		Timeouts: Timeouts{Put: 2000 * ms, Reserve: 1000 * ms, Alloc: 200 * ms, Reply: 400 * ms, Lease: 800 * ms,
			LeaseGuard: 100 * ms,
			Residual:   200 * ms, ClaimTTL: 2000 * ms, BackoffMin: 20 * ms, BackoffMax: 200 * ms, GetWaitMax: 1000 * ms,
			PullTTL: 800 * ms, Read: 1000 * ms,
			Fetch: 1000 * ms, Lead: 20 * ms, Loan: 2400 * ms},
		// Ample for these clusters, and small enough to be created anew for every incarnation.
		Bounds: Bounds{Puts: 64, Reserves: 64, Gets: 64, Waiters: 64, Requests: 128, Grants: 64, Peers: 8,
			Overtakes: 16, PeerSharePct: 100, Staging: 4, Offers: 64, Places: 256, Fetches: 64},
		Delays:    Delays{Message: ms, Device: ms / 5, Scatter: ms / 5},
		FaultsEnd: 2000 * ms,
	}
}

// WithStrikes returns the plan with the strikes of a run of the plan, in place of the rates that caused the strikes.
// The run is the same, and each strike can be removed individually.
func (p Plan) WithStrikes(strikes []Strike) Plan {
	p.Rates, p.Strikes, p.Spared = nil, strikes, nil
	return p
}

// Topology describes the nodes and planes of a plan.
type Topology struct {
	Senders       int    `yaml:"senders"`
	Receivers     int    `yaml:"receivers"`
	Both          int    `yaml:"both,omitempty"` // the number of nodes that are the last senders and the first receivers
	SenderPages   uint32 `yaml:"sender_pages"`
	ReceiverPages uint32 `yaml:"receiver_pages"`
	Leased        bool   `yaml:"leased"` // leased planes: hardware stores by itself; otherwise fenced planes
	// Communicators selects planes on which hardware ends its work for a peer only as a whole, as between NPUs. It
	// requires Leased.
	Communicators bool `yaml:"communicators,omitempty"`
	Mismatch      bool `yaml:"mismatch,omitempty"` // n0 is configured for another layout
	// Pull lists the senders that offer their chunks to be read. The remaining senders write their chunks.
	Pull []Node `yaml:"pull,omitempty,flow"`
	// Moves lists the nodes of Pull that announce a different address in every second incarnation. Unrenewed lists the
	// nodes of Pull that accept no renewals.
	Moves     []Node `yaml:"moves,omitempty,flow"`
	Unrenewed []Node `yaml:"unrenewed,omitempty,flow"`
	// Delay lists the receivers that keep offers until their engines fetch. The remaining receivers read each offer on
	// arrival.
	Delay []Node `yaml:"delay,omitempty,flow"`
	// Cache lists the receivers that keep chunks that no request expects any more while there is room (Retention).
	Cache []Node `yaml:"cache,omitempty,flow"`
	// Reply is the form in which receivers answer allocation requests, by its name in the configuration; empty means
	// ascend. Trust makes chunks of plain senders readable although no commit arrives for them (trust_uncommitted).
	Reply string `yaml:"reply,omitempty"`
	Trust bool   `yaml:"trust,omitempty"`
	// Foreign lists the nodes that write messages with another implementation's encoder, in any form that msgpack
	// allows.
	Foreign []Node `yaml:"foreign,omitempty,flow"`
	// DriftPPM is the rate by which each node's clock runs fast, or slow if negative, in parts per million. The ranks are
	// configured for the largest difference between two of them.
	DriftPPM []int `yaml:"drift_ppm,omitempty,flow"`
	// Identities lists the number of the identity that each node proves on its connections. Equal numbers denote the same
	// identity. If the list is empty, security is off: nobody proves anything. Strict means that strangers without an
	// identity reach no node; otherwise they do (mode permissive).
	Identities []uint32 `yaml:"identities,omitempty,flow"`
	Strict     bool     `yaml:"strict,omitempty"`
	// Tenants lists the tenants that the policy gives to each node, by number; 0 is the default tenant. If the list is
	// empty, each node has all tenants. Limited lists the nodes that hold chunks of their own tenants only. KeyTenants has
	// the tenants of the keys that are not of the default tenant; the keys of a job are of one tenant.
	Tenants    [][]uint32        `yaml:"tenants,omitempty,flow"`
	Limited    []Node            `yaml:"limited,omitempty,flow"`
	KeyTenants map[uint32]uint32 `yaml:"key_tenants,omitempty,flow"`
	// Domains makes the nodes tell trust domains apart: they are of one domain, and a stranger that proves nothing, or an
	// identity of its own, may be of another. It requires Identities.
	Domains bool `yaml:"domains,omitempty"`
	// Sums makes the engines of all nodes state checksums of their chunks, and the drivers compare what arrives. It
	Sums bool `yaml:"sums,omitempty"`
	// Origins lists the number of what each node counts against at the others: its host, or its identity. Equal numbers
	// denote the same one. If the list is empty, no origin is known.
	Origins []uint32 `yaml:"origins,omitempty,flow"`
	// Windows overrides bounds.window for individual nodes.
	Windows []uint32 `yaml:"windows,omitempty,flow"`
	// Flags names the flows in use, such as recall, with which senders may read back the chunks of receivers.
	Flags FlowFlags `yaml:",inline"`
}

// Timeouts are the timeouts of rank.Config.
type Timeouts struct {
	Put        time.Duration `yaml:"put"`
	Reserve    time.Duration `yaml:"reserve"`
	Alloc      time.Duration `yaml:"alloc"`
	Reply      time.Duration `yaml:"reply"`
	Lease      time.Duration `yaml:"lease"`
	LeaseGuard time.Duration `yaml:"lease_guard"`
	Residual   time.Duration `yaml:"residual"`
	ClaimTTL   time.Duration `yaml:"claim_ttl"`
	BackoffMin time.Duration `yaml:"backoff_min"`
	BackoffMax time.Duration `yaml:"backoff_max"`
	Breaker    time.Duration `yaml:"breaker,omitempty"` // 0: senders have no circuit breaker
	// For these fields 0 stands for the machine's default, which is longer than any run.
	RequestTTL time.Duration `yaml:"request_ttl,omitempty"`   // how long an idle request is recorded
	AbandonTTL time.Duration `yaml:"abandon_ttl,omitempty"`   // how long chunks for an abandoned request are refused
	Unfit      time.Duration `yaml:"unfit_backoff,omitempty"` // how long an incompatible peer is not contacted
	PullTTL    time.Duration `yaml:"pull_ttl"`                // how long an offer is valid
	Read       time.Duration `yaml:"read"`
	GetWaitMax time.Duration `yaml:"get_wait_max"`
	Fetch      time.Duration `yaml:"fetch"` // of a fetch that sets no timeout
	Lead       time.Duration `yaml:"lead"`  // remaining validity that an offer needs to be kept
	Loan       time.Duration `yaml:"loan"`  // longest validity of an offer, including renewals
}

// Bounds are the bounds of rank.Config.
type Bounds struct {
	Puts         uint32 `yaml:"puts"`
	Reserves     uint32 `yaml:"reserves"`
	Gets         uint32 `yaml:"gets"`
	Waiters      uint32 `yaml:"waiters"`
	Requests     uint32 `yaml:"requests"`
	Grants       uint32 `yaml:"grants"`
	Peers        uint32 `yaml:"peers"`
	Overtakes    uint32 `yaml:"overtakes"`
	PeerSharePct uint32 `yaml:"peer_share_pct"`
	// EngineSharePct is the share of the pool that the node's own engine may have, on a node that sends and receives.
	// 0: the machine's default.
	EngineSharePct uint32 `yaml:"engine_share_pct,omitempty"`
	// OriginSharePct is the share of the pool that all peers with one origin may have. 0: the whole pool.
	OriginSharePct uint32 `yaml:"origin_share_pct,omitempty"`
	// TenantSharePct is the share of the pool that the chunks of a tenant may have. 0: the whole pool.
	TenantSharePct uint32 `yaml:"tenant_share_pct,omitempty"`
	// TenantShareLater is the share to which receivers are changed when the second half of the jobs begins; 0: it stays.
	TenantShareLater uint32 `yaml:"tenant_share_later,omitempty"`
	Staging          uint32 `yaml:"staging"` // pages into which the fetches of one receiver read
	Offers           uint32 `yaml:"offers"`  // deferred offers of one receiver
	Places           uint32 `yaml:"places"`  // chunks of the deferred offers
	Fetches          uint32 `yaml:"fetches"`
	ReservePPM       uint32 `yaml:"reserve_ppm"`             // share of a sender's pool that offers must not use, in millionths
	Batch            uint32 `yaml:"batch,omitempty"`         // chunks in one message; 0: more than any message has
	Claims           uint32 `yaml:"claims,omitempty"`        // claims beyond the first on each page; 0: eight times the pages
	Window           uint32 `yaml:"window,omitempty"`        // requests in flight on one alloc lane; 0 means 1
	Carries          uint32 `yaml:"carries,omitempty"`       // bytes of chunks that a request for their pages carries; 0: none
	Rows             uint32 `yaml:"rows,omitempty"`          // rows that one step sweeps; 0: the machine's default
	WaitingBytes     uint32 `yaml:"waiting_bytes,omitempty"` // bytes of waiting requests; 0: the machine's default
}

// Delays are the durations of operations that depend neither on a fault nor on a machine.
type Delays struct {
	Message time.Duration `yaml:"message"` // mean delay of one message
	Device  time.Duration `yaml:"device"`  // mean time to move half a page
	Scatter time.Duration `yaml:"scatter"` // mean time in which an engine's device code takes one chunk
}

// A Job is a request: a sender prefills the request's chunks in batches, and a receiver reads them.
type Job struct {
	At      time.Duration `yaml:"at"`
	Request uint32        `yaml:"request"` // number of the request, which is unique among the jobs
	From    Node          `yaml:"from"`
	To      Node          `yaml:"to"`
	// Keys are the numbers of the chunks. Equal numbers denote the same chunk on all nodes. From FirstUnsharedKey on,
	// some numbers denote a shorter chunk if the number is the last of the job.
	Keys  []uint32 `yaml:"keys,flow"`
	Batch int      `yaml:"batch"` // chunks in one put
	// Whole makes the puts the parts of a single put: all are given together when the last chunk is filled.
	Whole bool `yaml:"whole,omitempty"`
	Plain bool `yaml:"plain,omitempty"` // the sender is a plain LMCache sender and not a node
	// PlainTo makes the reader a plain LMCache reader and not a node. The reader reads from the sender.
	PlainTo bool `yaml:"plain_to,omitempty"`
	Early   bool `yaml:"early,omitempty"` // the reader requests the chunks before the notification
	// Where offers are kept, readers normally fetch. Take: this reader takes pages, as readers elsewhere do. Prefix:
	// the reader fetches the first Prefix chunks separately. Gather: the reader wants chunks that earlier requests have
	// brought, and no sender sends anything for this job.
	Take   bool `yaml:"take,omitempty"`
	Prefix int  `yaml:"prefix,omitempty"`
	Gather bool `yaml:"gather,omitempty"`
	// Flags names the flow to which the job belongs, if any, and how the flow handles the job.
	Flags FlowFlags `yaml:",inline"`
}

// FirstUnsharedKey is the lowest key number that Expand of package sim gives to only a single job.
const FirstUnsharedKey = 100

// ScheduledFault is a fault at an instant. Fields that a kind of fault does not need are left out.
type ScheduledFault struct {
	At    time.Duration `yaml:"at"`
	Fault Fault         `yaml:"fault"`
	Node  Node          `yaml:"node"`
	// For is how long the fault lasts.
	For time.Duration `yaml:"for,omitempty"`
	// When names an effect, as in "before Transfer" or "after Reply". A crash waits for such an effect from At on,
	// skips the first Nth matching effects, and happens in the middle of that step. "before any" matches every effect.
	// If When is empty, the crash happens at once.
	When string `yaml:"when,omitempty"`
	Nth  uint64 `yaml:"nth,omitempty"`
	// Pick selects one of the existing connections or links, or the bytes of noise.
	Pick uint64 `yaml:"pick,omitempty"`
}

// A Node is the number of a node. Plans write n0, n1 and so on, and world for none.
type Node int32
