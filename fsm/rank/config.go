package rank

import (
	"fmt"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

// Role is the set of sides that a rank has: which commands and messages it takes. What it has no side for is refused.
type Role uint8

// The sides, and both at once.
const (
	RoleSender   Role = 1 << iota // puts: a prefill node
	RoleReceiver                  // lets puts in, and gets: a decode node
	RoleBoth     = RoleSender | RoleReceiver
)

// Sends says whether a rank puts.
func (r Role) Sends() bool { return r&RoleSender != 0 }

// Receives says whether a rank lets puts in.
func (r Role) Receives() bool { return r&RoleReceiver != 0 }

func (r Role) String() string {
	switch r {
	case RoleSender:
		return "sender"
	case RoleReceiver:
		return "receiver"
	case RoleBoth:
		return "both"
	}
	return "Role(" + strconv.Itoa(int(r)) + ")"
}

// directions in which it knows peers: those that it calls, those that call it.
func (r Role) directions() uint32 {
	if r == RoleBoth {
		return 2
	}
	return 1
}

// Plane is one data plane of this rank as its driver opened it.
type Plane struct {
	Name string
	Blob []byte // what every peer needs to import us; opaque here. Each is told it with a token of its own behind it
}

// Config is everything a rank needs to know. Zero durations and counts mean the
// default named in the comment; [New] refuses what cannot work.
type Config struct {
	Role    Role
	LocalID string // LMCache's local_id, sent in handshakes
	Layout  protocol.Layout
	Pages   uint32 // pages of the pool, which the engine fills or reads
	// Key is the secret of this life of the rank: 32 random bytes, which its planes have too, and nobody else. Zero: it follows from the
	// seed, which is for simulators and tests.
	Key   identity.Key
	Proxy effects.Addr // sender: where finished requests are told; empty host: nobody
	Rank  uint32       // TP rank, told to the proxy

	// Planes in order of preference. A peer that shares none is refused.
	Planes []Plane
	// Leased: the planes are hardware that nobody can watch (rule M4);
	// otherwise all are fenced (M3).
	Leased bool
	// Bearer: on these planes whoever knows an address can store there, so that peers without our extensions
	// are served. Only hardware can be so, and only the simulator's is: every plane of package runtime asks each peer for
	// its proof. Elsewhere such a peer is refused at once, since nothing it was granted could ever arrive. Needs Leased.
	Bearer bool
	// Residual bounds how long after its deadline an unbound plain sender's write
	// may still land on a leased plane; an assumption by name (M5).
	Residual effects.Duration // default 1 s

	// Pull: this sender lends its pages and receivers read them; otherwise it pushes.
	Pull bool
	// DoneAddr is where this sender takes the ends of its offers, as receivers can reach it. Required with Pull.
	DoneAddr effects.Addr
	// RenewAddr is where it takes renewals of them: its init socket, as receivers can reach it. Empty host: nowhere.
	RenewAddr effects.Addr
	// LoanMax bounds the life of an offer, renewals included, and how long a receiver believes that one stands.
	LoanMax effects.Duration // default 10 × PullTTL
	// PullTTL is how long an offer stands, however little is heard of its reader.
	PullTTL effects.Duration // default 360 s (pd_pull_pending_ttl)
	// HostPages are those of a second pool, to which a sender of Pull copies what is put and from which it
	// offers it (pd_use_cpu_offload); 0: it offers from Pages.
	HostPages uint32
	// ReservePPM of the pool's pages that it offers from, in millionths, are never lent: floor(pages × (1 − ReservePPM/10⁶)) is the high-water mark.
	ReservePPM uint32 // default 20000 (pd_pull_backpressure_reserve_pct 2.0); ReserveNone: nothing
	// Delay: this receiver keeps offers and reads them when its engine fetches; otherwise as they come.
	Delay bool
	// AddressesOnly: this receiver refuses an offer whose sender says by name where it takes words. Somebody would have to be asked
	// for the name, and whom is the peer's choice.
	AddressesOnly bool
	// StagingPages of the pool are what fetches read into, two halves of a batch each: the pipeline's depth is half of it.
	StagingPages uint32 // default Pages/8, at least 2
	// LeadMin is the least time for which an offer must still stand to be kept.
	LeadMin effects.Duration // default 100 ms
	// DriftPPM bounds how far clocks of two nodes run apart, in millionths, for leases on leased planes.
	DriftPPM uint32 // default 1000

	// Retention is what becomes of a chunk in a receiver that nobody expects or reads any more.
	Retention store.Retention // default Consume

	ReplyForm        protocol.ReplyForm
	TrustUncommitted bool // readable without commit: exempts such chunks from S1; needs Bearer

	PutTimeout     effects.Duration // default 30 s: a Put without Patience
	ReserveTimeout effects.Duration // default 10 s
	// RequestTTL is how long an idle or told request is remembered, so that the proxy
	// is told at most once; longer than any gap between batches of one prefill.
	RequestTTL   effects.Duration // default 30 s
	AllocTimeout effects.Duration // default 2 s (pd_alloc_fail_backoff_ttl): a request's wait for pages
	ReplyTimeout effects.Duration // default 5 s: a peer's answer; longer than its AllocTimeout
	Lease        effects.Duration // default 30 s: life of a write grant
	LeaseGuard   effects.Duration // default 1 s: a holder stops this long before the lease ends
	ClaimTTL     effects.Duration // default 360 s: how long a chunk is kept for its request, from its landing
	AbandonTTL   effects.Duration // default 10 s: how long what comes for an abandoned request is refused; negative: it is served
	BackoffMin   effects.Duration // default 50 ms
	BackoffMax   effects.Duration // default 5 s
	// UnfitBackoff is how long a receiver of another kind is left alone. Asking may harm it (package link).
	UnfitBackoff effects.Duration // default 300 s, and never less than BackoffMax
	BreakerTTL   effects.Duration // default 2 s: how long a receiver that had no memory is left alone; negative: it is not
	GetWaitMax   effects.Duration // default 60 s
	ReadTimeout  effects.Duration // default 10 s: a receiver's read of one offer
	FetchTimeout effects.Duration // default 30 s: the longest that a Fetch takes, and one without Patience

	BatchMax    uint32 // default 4096 chunks in a Put, Get, Fetch or AllocRequest
	PutsMax     uint32 // default 1024 puts open
	RequestsMax uint32 // default 4096 requests remembered for the proxy
	PeersMax    uint32 // default 256
	// Recalls: what lies at a decode node may be read back. Who puts recalls, who lets puts in answers.
	Recalls       bool
	RecallTimeout effects.Duration // default 5 s: a recall that says no patience
	RecallsMax    uint32           // default 256: in progress, and leases out for recalls of others
	// Window is how many requests a sender has in flight on one connection to a receiver's alloc port, and a receiver
	// takes on one; the smaller of the two counts.
	Window       uint16 // default 1: the next one when the last one was answered
	WaitersMax   uint32 // default 1024 allocation requests waiting, of all peers
	WaitingBytes uint64 // default 64 MiB that those have, of all peers; one has no more than it leaves
	GrantsMax    uint32 // default 4096
	GetsMax      uint32 // default 1024 gets open (waiting or pinned)
	FetchesMax   uint32 // default 256 fetches open
	OffersMax    uint32 // default 4096 offers kept for later
	PlacesMax    uint32 // default 16 × BatchMax + 4 × Pages chunks of such offers
	ClaimsMax    uint32 // default 8 × Pages claims on chunks beyond the first on each
	ReservesMax  uint32 // default 1024
	PeerSharePct uint32 // default 100: most of the pool granted to or quarantined for one peer
	// EngineSharePct is the most of the pool that our own engine may have reserved, in a rank of both sides.
	EngineSharePct uint32 // default 50
	OvertakesMax   uint32 // default 16: how often a waiting head may be overtaken
	RequestIDMax   uint32 // default 128 bytes
	Wire           protocol.Limits
	Tuning         Tuning
}

// ReserveNone as ReservePPM reserves nothing.
const ReserveNone = 1 << 31

// offers says whether this rank lends its pages.
func (c *Config) offers() bool { return c.Pull && c.Role.Sends() }

// sharedPages are those of the pool into which peers store, or from which they read.
func (c *Config) sharedPages() uint32 {
	if c.HostPages > 0 {
		return c.HostPages
	}
	return c.Pages
}

// highWater is the most pages that are lent at a time.
func (c *Config) highWater() uint32 {
	return uint32(uint64(c.sharedPages()) * uint64(1_000_000-c.ReservePPM) / 1_000_000)
}

// share is so much of the pool, and a page at least.
func (c *Config) share(pct uint32) uint32 { return uint32(max(1, uint64(c.Pages)*uint64(pct)/100)) }

func def[T int64 | uint32 | effects.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// entriesMax bounds the keys known: one for each page, each fill under way and each place at a sender.
func (c *Config) entriesMax() uint32 {
	n := 2*uint64(c.Pages) + uint64(c.BatchMax)
	if c.Delay {
		n += uint64(c.PlacesMax)
	}
	return clamped(n)
}

// deadlinesMax bounds the deadlines that are set at a time.
func (c *Config) deadlinesMax() int {
	return 5*int(c.PutsMax) + int(c.ReservesMax) + int(c.RequestsMax) + 5*int(c.PeersMax) + int(c.WaitersMax) +
		int(c.GrantsMax) + int(c.GetsMax) + 2*int(c.FetchesMax) + int(c.OffersMax) + int(c.entriesMax()) +
		2*c.asksMax() + c.answersMax() + 16
}

func (c *Config) fill() error {
	switch c.Role {
	case RoleSender, RoleReceiver, RoleBoth:
	default:
		return fmt.Errorf("rank: Role is %d: use RoleSender, RoleReceiver or RoleBoth", c.Role)
	}
	if err := c.Layout.Validate(); err != nil {
		return fmt.Errorf("rank: Layout: %w", err)
	}
	if c.Pages == 0 {
		return fmt.Errorf("rank: Pages is 0: a pool needs at least one page")
	}
	if len(c.Planes) == 0 {
		return fmt.Errorf("rank: Planes is empty: open at least one data plane")
	}
	if !c.Retention.Known() {
		return fmt.Errorf("rank: Retention is %d: use store.Consume or store.Cache", c.Retention)
	}
	if c.Bearer && !c.Leased {
		return fmt.Errorf("rank: Bearer without Leased: a fenced plane lets nobody in who presents no grant; set Leased, or leave Bearer out")
	}
	if c.TrustUncommitted && !c.Bearer {
		return fmt.Errorf("rank: TrustUncommitted without Bearer: on these planes no byte of a sender without our extensions arrives, so its chunks would be " +
			"whatever the pages held before; leave TrustUncommitted out")
	}
	def(&c.Residual, effects.Second)
	def(&c.PutTimeout, 30*effects.Second)
	def(&c.ReserveTimeout, 10*effects.Second)
	def(&c.RequestTTL, 30*effects.Second)
	def(&c.AllocTimeout, 2*effects.Second)
	def(&c.ReplyTimeout, 5*effects.Second)
	def(&c.Lease, 30*effects.Second)
	def(&c.LeaseGuard, effects.Second)
	def(&c.ClaimTTL, 360*effects.Second)
	def(&c.AbandonTTL, 10*effects.Second)
	def(&c.BackoffMin, 50*effects.Millisecond)
	def(&c.BackoffMax, 5*effects.Second)
	def(&c.UnfitBackoff, 300*effects.Second)
	c.UnfitBackoff = max(c.UnfitBackoff, c.BackoffMax)
	def(&c.BreakerTTL, 2*effects.Second)
	def(&c.RecallTimeout, 5*effects.Second)
	def(&c.RecallsMax, 256)
	def(&c.GetWaitMax, 60*effects.Second)
	def(&c.ReadTimeout, 10*effects.Second)
	def(&c.FetchTimeout, 30*effects.Second)
	def(&c.LeadMin, 100*effects.Millisecond)
	def(&c.StagingPages, min(max(2, c.Pages/8), c.Pages))
	def(&c.FetchesMax, 256)
	def(&c.OffersMax, 4096)
	def(&c.PullTTL, 360*effects.Second)
	def(&c.LoanMax, 10*c.PullTTL)
	def(&c.ReservePPM, 20_000)
	if c.ReservePPM == ReserveNone {
		c.ReservePPM = 0
	}
	def(&c.DriftPPM, 1000)
	def(&c.BatchMax, 4096)
	def(&c.PutsMax, 1024)
	def(&c.RequestsMax, 4096)
	def(&c.PeersMax, 256)
	def(&c.WaitersMax, 1024)
	if c.WaitingBytes == 0 {
		c.WaitingBytes = 64 << 20
	}
	def(&c.GrantsMax, 4096)
	def(&c.GetsMax, 1024)
	def(&c.PlacesMax, clamped(16*uint64(c.BatchMax)+4*uint64(c.Pages)))
	def(&c.ClaimsMax, clamped(8*uint64(c.Pages)))
	def(&c.ReservesMax, 1024)
	def(&c.PeerSharePct, 100)
	def(&c.EngineSharePct, 50)
	def(&c.OvertakesMax, 16)
	def(&c.RequestIDMax, 128)
	if c.Wire == (protocol.Limits{}) {
		c.Wire = protocol.DefaultLimits()
	}
	if err := c.Tuning.fill(); err != nil {
		return err
	}
	if err := c.countable(); err != nil {
		return err
	}
	if c.PeerSharePct > 100 {
		return fmt.Errorf("rank: PeerSharePct is %d: give 1 to 100", c.PeerSharePct)
	}
	if c.EngineSharePct > 100 {
		return fmt.Errorf("rank: EngineSharePct is %d: give 1 to 100", c.EngineSharePct)
	}
	if c.ReplyTimeout <= c.AllocTimeout {
		return fmt.Errorf("rank: ReplyTimeout %d ns must be longer than AllocTimeout %d ns, or every wait for pages would look like a dead peer", c.ReplyTimeout, c.AllocTimeout)
	}
	if c.StagingPages > c.Pages {
		return fmt.Errorf("rank: StagingPages is %d of %d pages: give at most all of them", c.StagingPages, c.Pages)
	}
	if c.ReservePPM >= 1_000_000 {
		return fmt.Errorf("rank: ReservePPM is %d: give less than 1000000, or nothing could ever be lent", c.ReservePPM)
	}
	if c.HostPages > 0 && c.asks() {
		return fmt.Errorf("rank: HostPages is %d with Recalls: what is recalled is read into the engine's own pages, which "+
			"peers do not touch with offload; give 0, or leave Recalls out", c.HostPages)
	}
	if c.HostPages > 0 && c.Role == RoleBoth {
		return fmt.Errorf("rank: HostPages is %d: a rank of both sides does not offload, since its peers would store into "+
			"the pool of the copies; give 0, or use RoleSender", c.HostPages)
	}
	if c.HostPages > 0 && !c.offers() {
		return fmt.Errorf("rank: HostPages is %d: only a sender that is pulled from offloads (pd_use_cpu_offload needs pd_pull_mode); set Pull, or give 0", c.HostPages)
	}
	if c.offers() {
		if c.DoneAddr.Host == "" || c.DoneAddr.Port == 0 {
			return fmt.Errorf("rank: DoneAddr is %q port %d: name where receivers tell that they have read", c.DoneAddr.Host, c.DoneAddr.Port)
		}
		if done := (protocol.Endpoint{Host: c.DoneAddr.Host, Port: c.DoneAddr.Port}); done.Unspecified() {
			return fmt.Errorf("rank: DoneAddr host is %q, which no receiver can reach: name this node's own address", c.DoneAddr.Host)
		}
		if renew := (protocol.Endpoint{Host: c.RenewAddr.Host, Port: c.RenewAddr.Port}); renew.Host != "" && (renew.Unspecified() || renew.Port == 0) {
			return fmt.Errorf("rank: RenewAddr is %q, which no receiver can reach: name this node's own address and its init port", renew)
		}
		if c.highWater() == 0 {
			return fmt.Errorf("rank: ReservePPM %d of %d pages leaves none to lend: reserve less, or enlarge the pool", c.ReservePPM, c.sharedPages())
		}
		if c.LeaseGuard >= c.PullTTL {
			return fmt.Errorf("rank: LeaseGuard %d ns must be shorter than PullTTL %d ns", c.LeaseGuard, c.PullTTL)
		}
	}
	if c.LeaseGuard >= c.Lease {
		return fmt.Errorf("rank: LeaseGuard %d ns must be shorter than Lease %d ns", c.LeaseGuard, c.Lease)
	}
	return nil
}
