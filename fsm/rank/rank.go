// Package rank composes the rooms into the one machine that drivers run. It routes events, owns the shared tables, and
// after each event lets those who waited for what the event set free go on.
//
// A driver may rely on this: each command that it feeds has one outcome, and each piece of memory comes back once; no
// event that a peer, a device or an engine can cause makes a step panic, and a panic ("BUG:") means a defect of ours or
// a breach of the contract in package effects; a step does a bounded amount of work, and what is left makes the next
// deadline be now. Nothing in it is shared, so it may be cloned and hashed as a tree.
package rank

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/directory/registrar"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/flows/end"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/pull"
	"github.com/kvferry/kvferry/fsm/rank/flows/push"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

// HostPool is the pool that chunks are copied to for peers, where there are two: with Config.ArenaPages. Pool 0 is the
// engine's.
const HostPool effects.PoolID = 1

// placeOfDevice is the place of the second pool of a rank that shares, with Config.DevicePages. Its pages have pool 0's
// id, and numbers behind all others'.
const placeOfDevice effects.PoolID = 2

// Rank is the machine.
type Rank struct {
	cfg         Config `snap:"share"`
	incarnation effects.Incarnation
	buffer      protocol.UUID
	device      protocol.UUID // of the second pool of who shares; zero: there is none

	// Pool 0 is the engine's. HostPool has no pages without an arena.
	pools   memory.Pools
	timers  kernel.Timers
	corrs   kernel.Corrs
	conns   kernel.Conns
	tickets kernel.Tickets `snap:"skip"` // as the rows say

	shared       flow.Config `snap:"share"`
	links        link.Links
	breakers     link.Breakers
	commands     engine.Engine
	flows        registry    `snap:"share"`
	pushSource   push.Source // absent if Config.Pull
	pullSource   pull.Source // absent if not
	renewals     lease.Renewals
	rooms        flow.Rooms // of targets; in each rank
	pushTarget   push.Target
	pullTarget   pull.Target
	recallSource recall.Source // likewise, without Config.Recalls
	recallTarget recall.Target
	p2pOwner     p2p.Owner // likewise, without Config.Shares
	p2pRequester p2p.Requester
	registrar    registrar.Registrar
	layers       layerwise.Source  // absent without Config.Layers
	consumer     register.Consumer // likewise, without Config.Geometry
	producer     register.Producer
	endSource    end.Source // likewise, without a sending side
	endTarget    end.Target

	env      flow.Env `snap:"scratch"` // of the step under way
	drain    drain
	draining bool   // it has begun to; it never ends
	freed    uint64 `snap:"skip"` // pages that had become free when waiters were last served
	more     bool   // work is left for the next Tick
	sweeps   sweeps
	work     kernel.Work  `snap:"scratch"`
	now      effects.Time `snap:"skip"`
}

// New validates cfg and returns a rank whose identifiers derive from seed alone.
func New(cfg Config, seed uint64, now effects.Time) (*Rank, error) {
	return Renew(new(Rank), cfg, seed, now)
}

// Renew returns what New does, in the memory of a rank that has ended: neither it nor anything that was borrowed from
// it is used any more. It saves who runs many ranks one after the other their tables.
func Renew(of *Rank, cfg Config, seed uint64, now effects.Time) (*Rank, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	pageBytes, err := cfg.Layout.PageBytes()
	if err != nil {
		return nil, fmt.Errorf("rank: Layout: %w", err)
	}
	if pageBytes > 1<<32-1 {
		return nil, fmt.Errorf("rank: a page of %d bytes is too large: give at most 4 GiB", pageBytes)
	}
	if cfg.Key == (identity.Key{}) {
		cfg.Key = identity.KeyOf(seed)
	}
	source := prng.New(seed)
	for range 2 * len(protocol.UUID{}) {
		source.Next() // Once these were the identities. What is drawn next stays what kept plans of the simulator have seen.
	}
	former := *of
	r := of
	*r = Rank{
		cfg: cfg, now: now,
		incarnation: cfg.Key.Life(),
		buffer:      protocol.UUID(cfg.Key.Buffer()),
		timers:      former.timers.Emptied(cfg.need().Deadlines),
		conns:       former.conns.Emptied(cfg.connsMax()),
		tickets:     former.tickets.Emptied(uint32(cfg.need().Commands - 1)), // all but a drain
	}
	if cfg.DevicePages > 0 {
		r.device = protocol.UUID(cfg.Key.Device())
	}
	r.shared = flow.Config{
		Layout: cfg.Layout, PageBytes: pageBytes, Buffer: r.buffer, Leased: cfg.Leased, Bearer: cfg.Bearer,
		Device: r.device, DeviceFrom: cfg.deviceFrom(),
		AllocTimeout: cfg.AllocTimeout, ReplyTimeout: cfg.ReplyTimeout, Lease: cfg.Lease, LeaseGuard: cfg.LeaseGuard,
		LeaseMax: cfg.ReadLeaseMax, DriftPPM: cfg.DriftPPM, BackoffMin: cfg.BackoffMin, BackoffMax: cfg.BackoffMax,
		BatchMax: cfg.BatchMax, PeersMax: cfg.PeersMax, AttemptsMax: cfg.Tuning.AttemptsMax, Window: cfg.Window,
		Carries: cfg.Carries, Wire: cfg.Wire,
	}
	r.corrs = former.corrs.Emptied(cfg.need().Outstanding())
	var lookup []byte
	if cfg.Shares {
		lookup = spoken(cfg.LookupAddr)
	}
	var names, blobs [][]byte
	for _, p := range cfg.Planes {
		names, blobs = append(names, []byte(p.Name)), append(blobs, append([]byte(nil), p.Blob...))
	}
	r.links = former.links.Emptied(link.Config{
		LocalID: cfg.LocalID, Layout: cfg.Layout, PageBytes: pageBytes, Buffer: r.buffer,
		Pages: cfg.Pages + cfg.ArenaPages, Device: r.device, DevicePages: cfg.DevicePages,
		Key: cfg.Key, PlaneNames: names, PlaneBlobs: blobs, Bearer: cfg.Bearer,
		Offers: cfg.offers() || cfg.registers(), Geometry: cfg.numbers(), Registers: cfg.RegisterWindow,
		Renews: cfg.offers() && cfg.RenewAddr.Host != "", DriftPPM: cfg.DriftPPM,
		ReplyTimeout: cfg.ReplyTimeout, BackoffMin: cfg.BackoffMin, BackoffMax: cfg.BackoffMax,
		UnfitBackoff: cfg.UnfitBackoff, PeersMax: cfg.PeersMax, Directions: cfg.Role.directions(),
		InboundTTL: cfg.ClaimTTL, Wire: cfg.Wire,
		Window: cfg.Window, Carries: cfg.Carries, LeftoversMax: cfg.Tuning.LeftoversMax, PlainsMax: cfg.Tuning.PlainsMax,
		SpokeFor: cfg.Tuning.SpokeFor, Recalls: cfg.answers(), Layers: cfg.Layers,
		TakesLayers: cfg.Layers > 0 && !cfg.WholeChunks, Lookup: lookup, Lookups: cfg.Lookups,
	}, source.Next())
	pools := append(make([]memory.PoolConfig, 0, memory.PoolsMax), cfg.first(), cfg.second())
	if cfg.DevicePages > 0 {
		pools = append(pools, cfg.device())
	}
	r.pools = former.pools.Emptied(int(cfg.GrantsMax), r.links.Classes(), prng.NewShuffle(cfg.Key.Words(0)), pools...)
	if cfg.Role == RoleBoth {
		r.pools.Present(allocqueue.Own) // Our engine may want pages at any time.
	}
	done := spoken(cfg.DoneAddr)
	var renew []byte
	if cfg.RenewAddr.Host != "" {
		renew = spoken(cfg.RenewAddr)
	}
	sends := source.Next()
	r.commands = former.commands.Emptied(engine.Config{
		Layout: cfg.Layout, PageBytes: pageBytes, PutTimeout: cfg.PutTimeout, ReserveTimeout: cfg.ReserveTimeout,
		RequestTTL: cfg.RequestTTL, BackoffMin: cfg.BackoffMin, BackoffMax: cfg.BackoffMax, Proxy: cfg.Proxy, Rank: cfg.Rank,
		TellsMax: cfg.Tuning.TellsMax,
		BatchMax: cfg.BatchMax, PutsMax: cfg.PutsMax, ReservesMax: cfg.ReservesMax, RequestsMax: cfg.RequestsMax,
		RequestIDMax: cfg.RequestIDMax, SharedMax: cfg.sharedMax(), InLine: cfg.Role == RoleBoth, Wire: cfg.Wire,
	}, sends)
	alone := kernel.Clamped(uint64(cfg.Tuning.BreakersPerPeer) * uint64(cfg.PeersMax))
	r.breakers = former.breakers.Emptied(cfg.BreakerTTL, int(alone), sends)
	if cfg.Pull {
		r.pullSource = former.pullSource.Emptied(pull.SourceConfig{
			PutsMax: cfg.PutsMax, TTL: cfg.PullTTL, HighWater: cfg.highWater(),
			// LMCache's receivers know a sender by its done address.
			SenderID: done, DoneURL: done, RenewURL: renew,
		}, cfg.PeersMax, sends)
		r.pushSource = former.pushSource.Emptied(0, 0, 0, 0) // It is not there, and keeps memory for one that will be.
	} else {
		r.pushSource = former.pushSource.Emptied(cfg.PutsMax, cfg.carried(), cfg.PeersMax, sends)
		r.pullSource = former.pullSource.Emptied(pull.SourceConfig{}, 0, 0)
	}
	classes, secret := r.links.Classes(), source.Next()
	r.rooms = emptied(&former.rooms, &cfg, pageBytes, classes, secret)
	r.pushTarget = former.pushTarget.Emptied(push.TargetConfig{
		ReplyForm: cfg.ReplyForm, TrustUncommitted: cfg.TrustUncommitted, Residual: cfg.Residual,
		WholeChunks: cfg.WholeChunks,
	})
	r.pullTarget = former.pullTarget.Emptied(pull.TargetConfig{
		Delay: cfg.Delay, AddressesOnly: cfg.AddressesOnly, ReadTimeout: cfg.ReadTimeout, LeadMin: cfg.LeadMin,
		OffersMax: cfg.OffersMax, GrantsMax: cfg.GrantsMax, RenewsMax: cfg.Tuning.RenewsMax,
		NotifyMax: cfg.Tuning.NotifyMax,
	}, &r.shared, classes, secret)
	if cfg.Recalls {
		own := recall.Config{
			RecallsMax: cfg.RecallsMax, Timeout: cfg.RecallTimeout, RequestIDMax: cfg.RequestIDMax,
		}
		r.recallSource = former.recallSource.Emptied(own, cfg.asksPeers())
		r.recallTarget = former.recallTarget.Emptied(loan.Config{
			LoansMax: cfg.RecallsMax, PagesMax: cfg.Pages, TTL: cfg.Lease, Leased: cfg.Leased,
		}, classes)
	}
	if cfg.layers() {
		r.layers = former.layers.Emptied(layerwise.Config{
			Settings: cfg.Layerwise, Layers: cfg.Layers, ItemsMax: cfg.Pages, Seed: secret,
		})
	}
	if cfg.tells() {
		r.endSource = former.endSource.Emptied(end.Config{
			EndsMax: cfg.RequestsMax, PeersMax: cfg.PeersMax, Timeout: cfg.PutTimeout,
		})
	}
	r.consumer = former.consumer.Emptied(&r.cfg.Registering, cfg.consumersPeers())
	r.producer = former.producer.Emptied(&r.cfg.Registering, classes)
	find := cfg.Directory
	if find.Owner, find.Asker = kernel.OwnerRegistrar, kernel.OwnerLookups; cfg.Knows() {
		find.Seed, find.Worker.Incarnation = source.Next(), r.incarnation
		r.more = true // Directories are told of it at once.
	}
	r.registrar = former.registrar.Emptied(find)
	if cfg.Shares {
		r.p2pRequester = former.p2pRequester.Emptied(p2p.RequesterConfig{
			ReceiverID: cfg.LocalID, BringsMax: cfg.BringsMax, Timeout: cfg.BringTimeout, LookupTime: cfg.LookupTimeout,
			RequestIDMax: cfg.RequestIDMax, Directory: find, Keeps: cfg.Keeps, LeadMin: cfg.LeadMin, Seed: secret,
		}, cfg.PeersMax)
		r.p2pOwner = former.p2pOwner.Emptied(p2p.OwnerConfig{
			DoneURL: spoken(cfg.PeerDoneAddr), PushesMax: min(cfg.PushesMax, cfg.LoansMax),
			Loans: loan.Config{
				LoansMax: cfg.LoansMax, PagesMax: cfg.Share(cfg.LoanSharePct), TTL: cfg.ShareTTL, Leased: cfg.Leased,
				Whole: uint32(pageBytes), Arena: cfg.ArenaPages,
			},
		}, classes)
	}
	r.registerFlows()
	return r, nil
}

// registerFlows registers the flows that the configuration asks for, in the order in which they are called.
func (r *Rank) registerFlows() {
	cfg := &r.cfg
	if !cfg.answers() {
		// Leases of recalls are swept first. A pass looks at that table also where there are none, because a look more or
		// less decides where passes are cut, which the simulator's kept plans depend on.
		r.flows.lossSweeps = append(r.flows.lossSweeps, kernel.OwnerNone)
	}
	if cfg.registers() { // The pool is the engine's own, and no other flow touches its pages.
		r.register(kernel.OwnerConsumer, true)
		r.register(kernel.OwnerProducer, false)
		return
	}
	for _, x := range [...]struct {
		is    bool
		of    kernel.Owner
		calls bool
	}{
		{cfg.Role.Sends() && cfg.Pull, kernel.OwnerPullSource, true},
		{cfg.Role.Sends() && !cfg.Pull, kernel.OwnerPushSource, true},
		{cfg.Role.Receives(), kernel.OwnerPushTarget, false},
		{cfg.Role.Receives(), kernel.OwnerPullTarget, false},
		{cfg.asks(), kernel.OwnerRecallSource, true},
		{cfg.answers(), kernel.OwnerRecallTarget, false},
		{cfg.layers(), kernel.OwnerLayers, true},
		{cfg.tells(), kernel.OwnerEndSource, false},
		{cfg.Role.Receives(), kernel.OwnerEndTarget, false},
		{cfg.Shares, kernel.OwnerP2POwner, false},
		{cfg.Shares, kernel.OwnerP2PRequester, true},
	} {
		if x.is {
			r.register(x.of, x.calls)
		}
	}
}

// spoken is an address as peers are told it.
func spoken(a effects.Addr) []byte {
	return []byte(protocol.Endpoint{Host: a.Host, Port: a.Port}.String())
}

// Limits are the rank's credits.
func (r *Rank) Limits() effects.Limits { return r.cfg.need().Limits }

// PutFits is how many of these chunks, from the first on, one Put of this rank can take. It depends on the
// configuration alone.
func (r *Rank) PutFits(keys [][]byte) int {
	if r.cfg.Pull {
		return r.pullSource.Fits(&r.shared, keys)
	}
	return r.pushSource.Fits(&r.shared, keys)
}

// RecallFits is the same of one Recall for a request.
func (r *Rank) RecallFits(request []byte, keys [][]byte) int {
	return recall.Fits(&r.shared, request, keys)
}

// BringFits is the same of one Bring.
func (r *Rank) BringFits(request []byte, keys [][]byte, mode p2p.Mode) int {
	return p2p.Fits(&r.shared, request, keys, mode)
}

// Incarnation is the identity of this life of the rank, for its own logs. Peers know it by other names, which begin
// like it.
func (r *Rank) Incarnation() effects.Incarnation { return r.incarnation }

// Buffer is the wire identity of the rank's pool into which peers store, or from which they read.
func (r *Rank) Buffer() effects.BufferID { return effects.BufferID(r.buffer) }

// Device is the wire identity of the second pool of a rank that shares, and the number of its first page; false if it
// has none.
func (r *Rank) Device() (id effects.BufferID, from uint32, has bool) {
	return effects.BufferID(r.device), r.cfg.deviceFrom(), r.cfg.DevicePages > 0
}

// Deadline is the next instant at which the rank wants a Tick.
func (r *Rank) Deadline() (effects.Time, bool) {
	if r.more {
		return r.now, true
	}
	return r.timers.Next()
}
