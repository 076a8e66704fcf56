// Package rank contains the top-level state machine of a node: [Rank]. A Rank combines the rooms (tables and rules for
// memory, peers and commands) and the flows (each is one side of an exchange, for example the side that pushes chunks
// or the side that accepts them) into one machine that a driver runs. The package routes each event to the room or flow
// that it concerns, owns the tables that several flows share, and at the end of each step continues the work that was
// waiting for what the event set free.
//
// A driver calls [New] once. Then the driver feeds events to Step, one at a time, executes the effects that the step
// emits, and feeds their completions back as events. The driver feeds a Tick when the time that Deadline returns has
// come. Example, for a rank that pushes a chunk to a decode node:
//
//	Command{Reserve}        -> Deliver with the pages; the engine fills them
//	Command{Put}            -> Open: the rank connects to the peer, then shakes hands and imports its pool
//	Imported                -> Send: an allocation request on the peer's alloc connection
//	Replied                 -> Transfer into the pages that the reply grants
//	TransferDone            -> on a leased plane Send: a commit; on a fenced plane Deliver: the put's outcome
//	Replied (leased plane)  -> Deliver: the put's outcome
//
// A driver may rely on this:
//
//   - Each command that the driver feeds has one outcome. Each piece of memory that the driver lends comes back once.
//   - No event that a peer, a device or an engine can cause makes a step panic. A panic ("BUG:") means that this code
//     has a defect, or that the driver broke the contract in package effects.
//   - A step does a bounded amount of work. If work is left, Deadline returns the current time.
//   - A Rank shares no state with anything outside of it, so a Rank can be cloned and hashed as a tree.
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

// HostPool is the id of the arena: the pool to which chunks are copied so that peers can read the copies. HostPool
// exists only if Config.ArenaPages is not 0. Pool 0 is the engine's pool.
const HostPool effects.PoolID = 1

// placeOfDevice is the index, in the rank's list of pools, of the device pool: the second pool of a rank that shares
// chunks (Config.DevicePages). On the outside, the pages of the device pool carry the id of pool 0, and their numbers
// follow the numbers of the remaining pages.
const placeOfDevice effects.PoolID = 2

// Rank is the state machine of one node.
type Rank struct {
	cfg         Config `snap:"share"`
	incarnation effects.Incarnation
	buffer      protocol.UUID
	device      protocol.UUID // wire id of the device pool; zero: there is none

	// pools holds the engine's pool (pool 0), the arena (HostPool, without pages if there is none) and the device pool.
	pools   memory.Pools
	timers  kernel.Timers
	corrs   kernel.Corrs
	conns   kernel.Conns
	tickets kernel.Tickets `snap:"skip"` // skip: derived from the rows

	shared       flow.Config `snap:"share"`
	links        link.Links
	breakers     link.Breakers
	commands     engine.Engine
	flows        registry    `snap:"share"`
	pushSource   push.Source // absent if Config.Pull
	pullSource   pull.Source // absent unless Config.Pull
	renewals     lease.Renewals
	rooms        flow.Rooms // the rooms that all targets share; present in each rank
	pushTarget   push.Target
	pullTarget   pull.Target
	recallSource recall.Source // absent without Config.Recalls
	recallTarget recall.Target
	p2pOwner     p2p.Owner // absent without Config.Shares
	p2pRequester p2p.Requester
	registrar    registrar.Registrar
	layers       layerwise.Source  // absent without Config.Layers
	consumer     register.Consumer // absent without Config.Geometry
	producer     register.Producer
	endSource    end.Source // absent if the rank does not send
	endTarget    end.Target

	env      flow.Env `snap:"scratch"` // the environment of the current step
	drain    drain
	draining bool   // a drain has begun; never reset
	freed    uint64 `snap:"skip"` // Pools.Freed() when waiting requests were last served
	more     bool   // work is left for the next Tick
	sweeps   sweeps
	work     kernel.Work  `snap:"scratch"`
	now      effects.Time `snap:"skip"`
}

// New validates cfg and returns a rank whose identifiers derive from seed alone. New returns an error if cfg cannot
// work.
func New(cfg Config, seed uint64, now effects.Time) (*Rank, error) {
	return Renew(new(Rank), cfg, seed, now)
}

// Renew returns what New returns, but reuses the memory of a rank that has ended. Neither that rank nor anything that
// was borrowed from it may be used afterwards. The simulator, which runs many ranks in sequence, thereby saves the
// allocation of their tables.
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
		// Two identifiers were once drawn here. The draws are kept so that the values drawn after them match the plans
		// that the simulator stores.
		source.Next()
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
		Settings: cfg.Common, PageBytes: pageBytes, Buffer: r.buffer, Device: r.device, DeviceFrom: cfg.deviceFrom(),
		DriftPPM: cfg.DriftPPM, PeersMax: cfg.PeersMax, AttemptsMax: cfg.Tuning.AttemptsMax,
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
		Settings: cfg.Peers, Layout: cfg.Layout, PageBytes: pageBytes, Buffer: r.buffer,
		Pages: cfg.Pages + cfg.ArenaPages, Device: r.device, DevicePages: cfg.DevicePages,
		Key: cfg.Key, PlaneNames: names, PlaneBlobs: blobs, Bearer: cfg.Bearer,
		Offers: cfg.offers() || cfg.registers(), Geometry: cfg.numbers(), Registers: cfg.RegisterWindow,
		Renews:       cfg.offers() && cfg.RenewAddr.Host != "",
		ReplyTimeout: cfg.ReplyTimeout, BackoffMin: cfg.BackoffMin, BackoffMax: cfg.BackoffMax,
		Directions: cfg.Role.directions(), InboundTTL: cfg.ClaimTTL, Wire: cfg.Wire,
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
		Settings: cfg.Engine, Layout: cfg.Layout, PageBytes: pageBytes, BackoffMin: cfg.BackoffMin,
		BackoffMax: cfg.BackoffMax, TellsMax: cfg.Tuning.TellsMax, BatchMax: cfg.BatchMax, SharedMax: cfg.sharedMax(),
		InLine: cfg.Role == RoleBoth, Wire: cfg.Wire,
	}, sends)
	alone := kernel.Clamped(uint64(cfg.Tuning.BreakersPerPeer) * uint64(cfg.PeersMax))
	r.breakers = former.breakers.Emptied(cfg.BreakerTTL, int(alone), sends)
	if cfg.Pull {
		r.pullSource = former.pullSource.Emptied(pull.SourceConfig{
			OfferSettings: cfg.Offering, PutsMax: cfg.PutsMax, PagesMax: cfg.highWater(),
			// LMCache's receivers identify a sender by its done address.
			SenderID: done, DoneURL: done, RenewURL: renew,
		}, cfg.PeersMax, sends)
		r.pushSource = former.pushSource.Emptied(0, 0, 0, 0) // absent here; keeps its memory for a later Renew
	} else {
		r.pushSource = former.pushSource.Emptied(cfg.PutsMax, cfg.carried(), cfg.PeersMax, sends)
		r.pullSource = former.pullSource.Emptied(pull.SourceConfig{}, 0, 0)
	}
	classes, secret := r.links.Classes(), source.Next()
	r.rooms = emptied(&former.rooms, &cfg, pageBytes, classes, secret)
	r.pushTarget = former.pushTarget.Emptied(push.TargetConfig{
		GrantSettings: cfg.Granting, WholeChunks: cfg.WholeChunks,
	})
	r.pullTarget = former.pullTarget.Emptied(pull.TargetConfig{
		ReadSettings: cfg.Reading, LeadMin: cfg.LeadMin, OffersMax: cfg.OffersMax, GrantsMax: cfg.GrantsMax,
		RenewsMax: cfg.Tuning.RenewsMax, NotifyMax: cfg.Tuning.NotifyMax,
	}, &r.shared, classes, secret)
	if cfg.Recalls {
		own := recall.Config{Settings: cfg.Recalling, RequestIDMax: cfg.RequestIDMax}
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
		r.more = true // Register with the directories at once.
	}
	r.registrar = former.registrar.Emptied(find)
	if cfg.Shares {
		r.p2pRequester = former.p2pRequester.Emptied(p2p.RequesterConfig{
			Settings: cfg.Sharing, ReceiverID: cfg.LocalID, RequestIDMax: cfg.RequestIDMax, Directory: find,
			LeadMin: cfg.LeadMin, Seed: secret,
		}, cfg.PeersMax)
		r.p2pOwner = former.p2pOwner.Emptied(p2p.OwnerConfig{
			Settings: cfg.Sharing, DoneURL: spoken(cfg.PeerDoneAddr),
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
		// The leases of recalls are swept first. A pass visits that table even in a rank without recalls, because the
		// number of visited slots decides where passes are cut, and the simulator's stored plans depend on that.
		r.flows.lossSweeps = append(r.flows.lossSweeps, kernel.OwnerNone)
	}
	// The pool is the engine's own. No other flow touches its pages.
	if cfg.registers() {
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

// spoken returns an address in the form in which it is sent to peers.
func spoken(a effects.Addr) []byte {
	return []byte(protocol.Endpoint{Host: a.Host, Port: a.Port}.String())
}

// Limits returns how many effects of each kind the rank may have outstanding, and how many commands it may have open.
func (r *Rank) Limits() effects.Limits { return r.cfg.need().Limits }

// PutFits returns how many of these chunks, counted from the first, one Put of this rank can take. The result depends
// on the configuration alone.
func (r *Rank) PutFits(keys [][]byte) int {
	if r.cfg.Pull {
		return r.pullSource.Fits(&r.shared, keys)
	}
	return r.pushSource.Fits(&r.shared, keys)
}

// RecallFits returns how many of these chunks, counted from the first, one Recall for the request can take.
func (r *Rank) RecallFits(request []byte, keys [][]byte) int {
	return recall.Fits(&r.shared, request, keys)
}

// BringFits returns how many of these chunks, counted from the first, one Bring for the request can take.
func (r *Rank) BringFits(request []byte, keys [][]byte, mode p2p.Mode) int {
	return p2p.Fits(&r.shared, request, keys, mode)
}

// Incarnation returns the identity of this incarnation of the rank, for its own logs. Each peer knows the rank by a
// different identity, which begins with the same bytes.
func (r *Rank) Incarnation() effects.Incarnation { return r.incarnation }

// Buffer returns the wire identity of the pool into which peers store, or from which peers read.
func (r *Rank) Buffer() effects.BufferID { return effects.BufferID(r.buffer) }

// Device returns the wire identity of the device pool and the number of its first page. Device reports false if the
// rank has no device pool.
func (r *Rank) Device() (id effects.BufferID, from uint32, has bool) {
	return effects.BufferID(r.device), r.cfg.deviceFrom(), r.cfg.DevicePages > 0
}

// Deadline returns the next time at which the rank needs a Tick. Deadline reports false if the rank waits for no time.
func (r *Rank) Deadline() (effects.Time, bool) {
	if r.more {
		return r.now, true
	}
	return r.timers.Next()
}
