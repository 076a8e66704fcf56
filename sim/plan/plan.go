// Package plan has what decides a run, as data: a [Plan], which is read and written as YAML and says of each of its
// fields what is wrong with it; the kinds of faults, and the strikes of those that are drawn on the fly; and what draws
// are about, by names that do not shift when something else is cut out ([Subject]).
//
// A caller may rely on this: a plan that was parsed or checked can be run; what is written reads as the same plan; and
// what a plan leaves out is as in [New].
package plan

import "time"

// Version is the version of the format; a file of another one is refused.
const Version = 1

// A Plan is everything that decides a run: what there is, what engines want, what goes
// wrong and when. Expand of package sim makes one from a seed; it can as well be read from a file,
// be written by hand, or come from a generator. All it leaves open are draws that are
// keyed by Seed and by what they concern, such as how long one message takes, so that
// cutting something out of a plan leaves the rest of the story as it was.
//
// Durations are simulated. Nodes are numbered from n0: those that only send, then those that do both, then those that
// only receive.
type Plan struct {
	Version int `yaml:"version"`
	// What a kept plan is of, in a sentence, and which property it broke then. Reaches
	// are the coverage marks that its run took when it was kept: a plan that no longer
	// does has gone stale.
	Defect   string   `yaml:"defect,omitempty"`
	Property string   `yaml:"property,omitempty"`
	Reaches  []string `yaml:"reaches,omitempty"`

	Seed     uint64   `yaml:"seed"`
	Profile  string   `yaml:"profile,omitempty"` // that it was drawn from, for the reader only
	Topology Topology `yaml:"topology"`
	Timeouts Timeouts `yaml:"timeouts"`
	Bounds   Bounds   `yaml:"bounds"`
	Delays   Delays   `yaml:"delays"`
	Tuning   Tuning   `yaml:"tuning,omitempty"`

	Jobs []Job `yaml:"jobs"`
	// Items are what engines of users' systems want; System is the name of what the plan is for, empty for PD.
	System string `yaml:"system,omitempty"`
	Items  []Item `yaml:"items,omitempty"`

	// FaultsEnd is when everything heals; nothing strikes after it.
	FaultsEnd time.Duration `yaml:"faults_end"`
	// Faults are the scheduled ones.
	Faults []Scheduled `yaml:"faults,omitempty"`
	// Rates are how often, of a thousand occasions, each of the other faults strikes.
	Rates map[Fault]int `yaml:"rates,omitempty"`
	// Strikes happen whatever the rates say, and Spared do not: single occasions. A
	// recorded run has all its strikes here and no rates.
	Strikes []Strike `yaml:"strikes,omitempty"`
	Spared  []Strike `yaml:"spared,omitempty"`
}

// New is one sender and one receiver with ample bounds, short timeouts, no jobs and
// no faults: what a plan by hand starts from, and what is meant by whatever a file
// leaves out. Its values are part of the format.
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
		// Ample for these clusters, and small enough to be made anew for every life.
		Bounds: Bounds{Puts: 64, Reserves: 64, Gets: 64, Waiters: 64, Requests: 128, Grants: 64, Peers: 8,
			Overtakes: 16, PeerSharePct: 100, Staging: 4, Offers: 64, Places: 256, Fetches: 64},
		Delays:    Delays{Message: ms, Device: ms / 5, Scatter: ms / 5},
		FaultsEnd: 2000 * ms,
	}
}

// Recorded is the plan with the strikes that a run of it had instead of the rates that
// brought them about: it runs the same, and each strike can be taken out by itself.
func (p Plan) Recorded(strikes []Strike) Plan {
	p.Rates, p.Strikes, p.Spared = nil, strikes, nil
	return p
}

// Topology is what there is.
type Topology struct {
	Senders       int    `yaml:"senders"`
	Receivers     int    `yaml:"receivers"`
	Both          int    `yaml:"both,omitempty"` // so many of the last senders are the first receivers too
	SenderPages   uint32 `yaml:"sender_pages"`
	ReceiverPages uint32 `yaml:"receiver_pages"`
	Leased        bool   `yaml:"leased"` // planes of hardware that stores by itself; otherwise fenced ones
	// Communicators have hardware end what it does for a peer only as a whole, as between NPUs; with leased.
	Communicators bool `yaml:"communicators,omitempty"`
	Mismatch      bool `yaml:"mismatch,omitempty"` // n0 is configured for another layout
	// Pull are the senders that offer their chunks to be read; the others write them.
	Pull []Node `yaml:"pull,omitempty,flow"`
	// Moves are those of them that announce another address in every other life, Unrenewed those that take no renewals.
	Moves     []Node `yaml:"moves,omitempty,flow"`
	Unrenewed []Node `yaml:"unrenewed,omitempty,flow"`
	// Delay are the receivers that keep offers until their engines fetch; the others read them as they come.
	Delay []Node `yaml:"delay,omitempty,flow"`
	// Cache are the receivers that keep what nobody expects any more while there is room (Retention).
	Cache []Node `yaml:"cache,omitempty,flow"`
	// Reply is the form in which receivers answer allocations, by its name in the
	// configuration; empty is ascend. Trust makes chunks of plain senders readable
	// although nobody commits them (trust_uncommitted).
	Reply string `yaml:"reply,omitempty"`
	Trust bool   `yaml:"trust,omitempty"`
	// Foreign are the nodes whose encoders are not ours: they write messages in any of the forms that msgpack allows.
	Foreign []Node `yaml:"foreign,omitempty,flow"`
	// DriftPPM is how many parts per million each node's clock runs fast, or slow where
	// it is negative. Leases hold up to guard / (2 lease - guard).
	DriftPPM []int `yaml:"drift_ppm,omitempty,flow"`
	// Windows are the bounds.window of each node by itself, where they differ.
	Windows []uint32 `yaml:"windows,omitempty,flow"`
	// Said are the flows that play, such as recall: what receivers have may be read back by senders.
	Said Said `yaml:",inline"`
}

// Timeouts are those of rank.Config.
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
	Breaker    time.Duration `yaml:"breaker,omitempty"` // 0: senders have none
	// Of 0 stand these for what a machine has by default, which no run lasts for.
	RequestTTL time.Duration `yaml:"request_ttl,omitempty"`   // how long an idle request is remembered
	AbandonTTL time.Duration `yaml:"abandon_ttl,omitempty"`   // what comes for an abandoned one is refused
	Unfit      time.Duration `yaml:"unfit_backoff,omitempty"` // who is of another kind is left alone
	PullTTL    time.Duration `yaml:"pull_ttl"`                // how long an offer stands
	Read       time.Duration `yaml:"read"`
	GetWaitMax time.Duration `yaml:"get_wait_max"`
	Fetch      time.Duration `yaml:"fetch"` // of one without a patience of its own
	Lead       time.Duration `yaml:"lead"`  // for which an offer must still stand to be kept
	Loan       time.Duration `yaml:"loan"`  // how long an offer can live, renewals included
}

// Bounds are those of rank.Config.
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
	// EngineSharePct is how much of the pool of a node that does both its own engine may have; 0: the machine's default.
	EngineSharePct uint32 `yaml:"engine_share_pct,omitempty"`
	Staging        uint32 `yaml:"staging"` // pages that fetches of one receiver read into
	Offers         uint32 `yaml:"offers"`  // kept by one receiver
	Places         uint32 `yaml:"places"`  // chunks of those
	Fetches        uint32 `yaml:"fetches"`
	ReservePPM     uint32 `yaml:"reserve_ppm"`       // how much of a sender's pool offers leave alone, in millionths
	Batch          uint32 `yaml:"batch,omitempty"`   // chunks in one message; 0: more than any has
	Claims         uint32 `yaml:"claims,omitempty"`  // beyond the first on each page; 0: eight times the pages
	Window         uint32 `yaml:"window,omitempty"`  // requests in flight on one alloc lane; 0 is 1
	Carries        uint32 `yaml:"carries,omitempty"` // bytes of chunks that come with a request for their pages; 0: none
	Rows           uint32 `yaml:"rows,omitempty"`    // that one step sweeps; 0: the machine's default
}

// Delays are how long things take that are neither a fault nor a machine's doing.
type Delays struct {
	Message time.Duration `yaml:"message"` // the mean of one message
	Device  time.Duration `yaml:"device"`  // the mean of half a page
	Scatter time.Duration `yaml:"scatter"` // the mean of one chunk that an engine's device code takes
}

// A Job is one request: a sender prefills its chunks in batches, a receiver reads them.
type Job struct {
	At      time.Duration `yaml:"at"`
	Request uint32        `yaml:"request"` // its number, which other jobs do not share
	From    Node          `yaml:"from"`
	To      Node          `yaml:"to"`
	// Keys are the numbers of its chunks. Equal numbers are the same chunk, whoever has
	// it. Some from KeysOwn on are shorter chunks where they come last.
	Keys  []uint32 `yaml:"keys,flow"`
	Batch int      `yaml:"batch"` // chunks in one put
	// its puts are the parts of one: they are given together when the last chunk is there
	Whole bool `yaml:"whole,omitempty"`
	Plain bool `yaml:"plain,omitempty"` // its sender is a plain LMCache one, and none of the nodes
	// its reader is a plain LMCache one, and none of the nodes; its sender is read from
	PlainTo bool `yaml:"plain_to,omitempty"`
	Early   bool `yaml:"early,omitempty"` // its reader asks before it is told
	// Where offers are kept, readers fetch. This one does otherwise: it takes pages, as elsewhere; or
	// fetches the first so many chunks by themselves; or wants what the requests of others brought,
	// and nobody sends anything for it.
	Take   bool `yaml:"take,omitempty"`
	Prefix int  `yaml:"prefix,omitempty"`
	Gather bool `yaml:"gather,omitempty"`
	// Said is whose job it is, if it is a flow's, and how.
	Said Said `yaml:",inline"`
}

// KeysOwn is the first number of chunks that Expand of package sim gives to one job alone.
const KeysOwn = 100

// Scheduled is a fault at an instant. What a kind does not need is left out.
type Scheduled struct {
	At    time.Duration `yaml:"at"`
	Fault Fault         `yaml:"fault"`
	Node  Node          `yaml:"node"`
	// For is how long it lasts.
	For time.Duration `yaml:"for,omitempty"`
	// When is an effect, as in "before Transfer" or "after Reply": a crash waits for
	// the Nth of them from At on, and happens in the middle of that step. "before any"
	// waits for whichever comes. Empty: at once.
	When string `yaml:"when,omitempty"`
	Nth  uint64 `yaml:"nth,omitempty"`
	// Pick decides which one of those that are there, or the bytes of noise.
	Pick uint64 `yaml:"pick,omitempty"`
}

// A Node is a node's number. In plans it reads n0, n1 and so on, and world for none.
type Node int32
