// Package rank contains the top-level state machine of a node: [Rank]. A Rank combines the rooms (packages with the
// tables and rules for memory, peers and commands) and the flows (each is one side of an exchange, for example the side
// that pushes chunks or the side that accepts them) into one machine that a driver runs. The package routes each event
// to the room or flow that it concerns, owns the tables that several flows share, and at the end of each step continues
// the work that was waiting for what the event set free.
//
// A driver calls [New] once. Then the driver feeds events to Step, one at a time, executes the effects that the step
// emits, and feeds their completions back as events. The driver feeds a Tick when the time that Deadline returns has
// come. Example, for a rank that pushes a chunk to a decode node:
//
//	Command{Reserve}        -> Deliver with the pages; the engine fills them
//	Command{Put}            -> Open: the rank connects to the peer, shakes hands, and imports the peer's pool (Import)
//	Imported                -> Send: an allocation request on the peer's alloc connection
//	Replied                 -> Transfer into the pages that the reply grants
//	TransferDone            -> on a leased plane Send: a commit message; on a fenced plane Deliver: the put's outcome
//	Replied (leased plane)  -> Deliver: the put's outcome
//
// On a fenced plane the owner of a pool can revoke the access of a peer, and a confirmation proves that the peer touches
// nothing any more. On a leased plane the owner cannot observe or stop accesses, and relies on time (M4 in
// docs/safety.md).
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
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/identity"
	"github.com/kvferry/kvferry/protocol"
)

// ArenaPool is the id of the arena: the pool to which chunks are copied so that peers can read the copies. ArenaPool
// exists only if Config.ArenaPages is not 0. Pool 0 is the engine's pool.
const ArenaPool effects.PoolID = 1

// devicePoolIndex is the index of the device pool (Config.DevicePages) in the rank's list of pools, after the engine's
// pool (0) and the arena (1). To the engine the device pool looks like a part of pool 0: its pages carry the id of pool
// 0, and their numbers begin at Pages + ArenaPages.
const devicePoolIndex effects.PoolID = 2

// Rank is the state machine of one node.
//
// The snap tags of the fields say what package snapshot does with a field: share (clones share it, it is not hashed),
// skip (cloned, not hashed) and scratch (used within one step only).
type Rank struct {
	cfg         Config `snap:"share"`
	incarnation effects.Incarnation
	bufferID    protocol.UUID
	deviceID    protocol.UUID // wire id of the device pool; zero: there is none

	// pools holds the engine's pool (pool 0), the arena (ArenaPool, without pages if there is none) and the device
	// pool.
	pools   memory.Pools
	timers  kernel.Timers
	corrs   kernel.Corrs // for each correlation number in use: the row that waits for the completion
	conns   kernel.Conns
	tickets kernel.Tickets `snap:"skip"` // skip: derived from the rows

	flowConfig  flow.Config `snap:"share"`
	links       link.Links
	breakers    link.Breakers
	commands    engine.Engine
	flows       registry       `snap:"share"`
	flowSet                    // the flows (flows.go)
	renewals    lease.Renewals `snap:"scratch"`
	sharedRooms flow.Rooms     // the rooms that all targets share; every rank has them
	registrar   registrar.Registrar

	env              flow.Env `snap:"scratch"` // the environment of the current step
	drain            drain
	draining         bool   // a drain has begun; never reset
	servedFreedCount uint64 `snap:"skip"` // Pools.FreedCount() when waiting requests were last served
	workLeft         bool   // work is left for the next Tick
	sweeps           sweeps
	work             kernel.WorkBudget `snap:"scratch"`
	now              effects.Time      `snap:"skip"`
}

// New validates cfg and returns a rank. Its names on the wire derive from cfg.Key, and the numbers of its operations
// from seed. If cfg.Key is zero, as in tests, the key is derived from seed too. New returns an error if cfg cannot
// work.
func New(cfg Config, seed uint64, now effects.Time) (*Rank, error) {
	return Recycle(new(Rank), cfg, seed, now)
}

// Recycle returns what New returns, but reuses the memory of a rank that has ended. Neither that rank nor anything that
// was borrowed from it may be used afterwards. The simulator, which runs many ranks in sequence, thereby saves the
// allocation of their tables.
func Recycle(old *Rank, cfg Config, seed uint64, now effects.Time) (*Rank, error) {
	if err := cfg.fillDefaults(); err != nil {
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
		cfg.Key = identity.KeyFromSeed(seed)
	}
	source := prng.New(seed)
	for range 2 * len(protocol.UUID{}) {
		// Skip 32 draws: the stored plans of the simulator count on the values that are drawn after them.
		source.Next()
	}
	former := *old
	r := old
	*r = Rank{
		cfg: cfg, now: now,
		incarnation: cfg.Key.PublicID(),
		bufferID:    protocol.UUID(cfg.Key.BufferID()),
		timers:      former.timers.Recycle(cfg.totalNeed().Deadlines),
		conns:       former.conns.Recycle(cfg.connsMax()),
		tickets:     former.tickets.Recycle(uint32(cfg.totalNeed().Commands - 1)), // all but a drain
	}
	if cfg.DevicePages > 0 {
		r.deviceID = protocol.UUID(cfg.Key.DeviceBufferID())
	}
	r.flowConfig = flow.Config{
		Settings: cfg.Common, PageBytes: pageBytes, Buffer: r.bufferID, Device: r.deviceID, DeviceFrom: cfg.deviceFirstPage(),
		DriftPPM: cfg.DriftPPM, PeersMax: cfg.PeersMax, AttemptsMax: cfg.Tuning.AttemptsMax,
	}
	r.corrs = former.corrs.Recycle(cfg.totalNeed().MaxOutstanding())
	var lookup []byte
	if cfg.Shares {
		lookup = wireAddr(cfg.LookupAddr)
	}
	var names, blobs [][]byte
	for _, p := range cfg.Planes {
		names, blobs = append(names, []byte(p.Name)), append(blobs, append([]byte(nil), p.Blob...))
	}
	r.links = former.links.Recycle(link.Config{
		Settings: cfg.Peers, Layout: cfg.Layout, PageBytes: pageBytes, Buffer: r.bufferID,
		Pages: cfg.Pages + cfg.ArenaPages, Device: r.deviceID, DevicePages: cfg.DevicePages,
		Key: cfg.Key, PlaneNames: names, PlaneBlobs: blobs, Bearer: cfg.Bearer,
		Offers: cfg.isPullSender() || cfg.registersBlocks(), Geometry: cfg.geometryNumbers(), RegisterWindow: cfg.RegisterWindow,
		Renews:       cfg.isPullSender() && cfg.RenewAddr.Host != "",
		ReplyTimeout: cfg.ReplyTimeout, BackoffMin: cfg.BackoffMin, BackoffMax: cfg.BackoffMax,
		Directions: cfg.Role.countDirections(), InboundTTL: cfg.ClaimTTL, Wire: cfg.Wire,
		Window: cfg.Window, Carries: cfg.Carries, LeftoversMax: cfg.Tuning.LeftoversMax, PlainsMax: cfg.Tuning.PlainsMax,
		ProvenPeerBonus: cfg.Tuning.ProvenPeerBonus, Recalls: cfg.servesRecalls(), Layers: cfg.Layers,
		TakesLayers: cfg.Layers > 0 && !cfg.WholeChunks, LookupAddr: lookup, Lookups: cfg.Lookups,
	}, source.Next())
	pools := append(make([]memory.PoolConfig, 0, memory.PoolsMax), cfg.enginePoolConfig(), cfg.arenaConfig())
	if cfg.DevicePages > 0 {
		pools = append(pools, cfg.devicePoolConfig())
	}
	r.pools = former.pools.Recycle(int(cfg.GrantsMax), r.links.CountClasses(), prng.NewShuffle(cfg.Key.SecretNumbers(0)), pools...)
	if cfg.Role == RoleBoth {
		r.pools.MarkPresent(allocqueue.EngineClass) // Our engine may want pages at any time.
	}
	flowSeed := source.Next()
	r.commands = former.commands.Recycle(engine.Config{
		Settings: cfg.Engine, Layout: cfg.Layout, PageBytes: pageBytes, BackoffMin: cfg.BackoffMin,
		BackoffMax: cfg.BackoffMax, TellsMax: cfg.Tuning.TellsMax, BatchMax: cfg.BatchMax, SharedMax: cfg.sharedMax(),
		InAllocQueue: cfg.Role == RoleBoth, Wire: cfg.Wire,
	}, flowSeed)
	breakersMax := kernel.ClampCount(uint64(cfg.Tuning.BreakersPerPeer) * uint64(cfg.PeersMax))
	r.breakers = former.breakers.Recycle(cfg.BreakerTTL, int(breakersMax), flowSeed)
	classes, secret := r.links.CountClasses(), source.Next()
	r.sharedRooms = recycleRooms(&former.sharedRooms, &cfg, pageBytes, classes, secret)
	directory := cfg.Directory
	if directory.Owner, directory.LookupOwner = kernel.OwnerRegistrar, kernel.OwnerLookups; cfg.UsesDirectories() {
		directory.Seed, directory.Worker.Incarnation = source.Next(), r.incarnation
		r.workLeft = true // Register with the directories at once.
	}
	r.registrar = former.registrar.Recycle(directory)
	r.recycleFlows(&former.flowSet, flowSeeds{flow: flowSeed, secret: secret}, directory)
	r.registerFlows()
	return r, nil
}

// wireAddr returns an address in the form in which it is sent to peers.
func wireAddr(a effects.Addr) []byte {
	return []byte(protocol.Endpoint{Host: a.Host, Port: a.Port}.String())
}

// Limits returns how many effects of each kind the rank may have outstanding, and how many commands it may have open.
func (r *Rank) Limits() effects.Limits { return r.cfg.totalNeed().Limits }

// PutFits returns how many of these chunks, counted from the first, one Put of this rank can take. The result depends
// on the configuration alone.
func (r *Rank) PutFits(keys [][]byte) int {
	if r.cfg.Pull {
		return r.pullSource.CountFitting(&r.flowConfig, keys)
	}
	return r.pushSource.CountFitting(&r.flowConfig, keys)
}

// RecallFits returns how many of these chunks, counted from the first, one Recall for the request can take.
func (r *Rank) RecallFits(request []byte, keys [][]byte) int {
	return recall.CountFitting(&r.flowConfig, request, keys)
}

// BringFits returns how many of these chunks, counted from the first, one Bring for the request can take.
func (r *Rank) BringFits(request []byte, keys [][]byte, mode p2p.Mode) int {
	return p2p.CountFitting(&r.flowConfig, request, keys, mode)
}

// Incarnation returns the identity of this incarnation of the rank, for its own logs. Each peer knows the rank by a
// different identity, which begins with the same bytes.
func (r *Rank) Incarnation() effects.Incarnation { return r.incarnation }

// Buffer returns the wire identity of the pool into which peers store, or from which peers read.
func (r *Rank) Buffer() effects.BufferID { return effects.BufferID(r.bufferID) }

// Device returns the wire identity of the device pool and the number of its first page. Device reports false if the
// rank has no device pool.
func (r *Rank) Device() (id effects.BufferID, from uint32, exists bool) {
	return effects.BufferID(r.deviceID), r.cfg.deviceFirstPage(), r.cfg.DevicePages > 0
}

// Deadline returns the next time at which the rank needs a Tick. Deadline reports false if the rank waits for no time.
func (r *Rank) Deadline() (effects.Time, bool) {
	if r.workLeft {
		return r.now, true
	}
	return r.timers.NextDeadline()
}

// EarliestDeadline returns the earliest pending deadline, and looks at each. Use it for inspection only.
func (r *Rank) EarliestDeadline() (effects.Time, bool) { return r.timers.EarliestDeadline() }
