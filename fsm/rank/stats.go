package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/end"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/pull"
	"github.com/kvferry/kvferry/fsm/rank/flows/push"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/fsm/rank/flows/register"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/bundle"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/loan"
	"github.com/kvferry/kvferry/fsm/rank/peers/notice"
	"github.com/kvferry/kvferry/fsm/rank/peers/outcomes"
)

// Stats counts what is in the rank's tables. Pages are the engine's, unless the field's comment says otherwise.
// PagesGranted and PagesQuarantined include the device pool; PagesLent includes the device pool and the arena, from
// which peers read if there is an arena.
type Stats struct {
	PagesTotal, PagesFree, PagesGranted, PagesQuarantined, PagesLent int
	PagesLentMost                                                    int // maximum since the start
	Spare                                                            int // that only the cache needs
	ArenaTotal, ArenaFree                                            int // pages of the arena
	DeviceTotal, DeviceFree                                          int // pages of the device pool
	DeviceSpare                                                      int // that only the cache needs
	Pinned                                                           int // pins of pages for peers
	Puts, Reserves, Requests, Tombstones                             int
	Gets, Waiters, Grants, Entries, Claims, Fills                    int
	Offers, Locations, Fetches, Staged                               int // delayed pull
	StagedMost                                                       int // maximum of Staged since the start
	Peers, Guests, Outstanding, Deadlines                            int
	Brings                                                           int // of shared chunks, ended or not
	Receptions, Lent, Registrations                                  int // for registered blocks
	Layers, Bundles, Kept                                            int // layerwise: requests, chunks, promised pages
	// Operations counts the operations of grants that are in force, and Retries the operations of pending requests.
	// Retries of requests are recognized by both.
	Operations, Retries int
}

// Stats returns the current counts.
func (r *Rank) Stats() Stats {
	here, pipe := &r.rooms, r.rooms.Fetches.Pipeline()
	requests, told := r.commands.Requests()
	pool, arena, device, spare := r.pools.Pool(0), r.pools.Pool(HostPool), r.devicePool(), 0
	if device.Total() > 0 {
		spare = int(here.Store.Spare(device))
	}
	return Stats{
		PagesTotal: int(pool.Total()), PagesFree: int(pool.Free()),
		PagesGranted:     int(pool.Granted() + device.Granted()),
		PagesQuarantined: int(pool.Quarantined() + device.Quarantined()),
		PagesLent:        int(pool.Lent() + arena.Lent() + device.Lent()),
		PagesLentMost:    int(pool.LentMost() + arena.LentMost() + device.LentMost()),
		ArenaTotal:       int(arena.Total()), ArenaFree: int(arena.Free()),
		DeviceTotal: int(device.Total()), DeviceFree: int(device.Free()), DeviceSpare: spare,
		Pinned: r.p2pOwner.Loans().Out() + r.recallTarget.Loans().Out(),
		Puts:   r.pushSource.Len() + r.pullSource.Len(), Reserves: r.commands.Reserves(), Requests: requests,
		Tombstones: told,
		Gets:       here.Gets.Len(), Waiters: here.Pending.Len(), Grants: r.pools.Grants(),
		Spare: int(here.Store.Spare(pool)), Entries: here.Store.Entries(), Claims: here.Store.Claims(),
		Fills:  int(pool.Granted() + pool.Quarantined() + device.Granted() + device.Quarantined()),
		Offers: here.Deferred.Len(), Locations: here.Store.Locations(), Fetches: here.Fetches.Len(),
		Staged: int(pipe.Staged()), StagedMost: int(pipe.StagedMost()),
		Peers: r.links.Peers(), Guests: r.links.InboundLen(), Outstanding: r.corrs.Len(), Deadlines: r.timers.Len(),
		Brings:     r.p2pRequester.Len(),
		Receptions: r.consumer.Len(), Lent: r.producer.Batches(), Registrations: r.producer.Registrations(),
		Layers: r.layers.Len(), Bundles: here.Landings.Bundles.Len(), Kept: int(pool.Kept()),
		Operations: here.Landings.Operations(), Retries: here.Pending.Operations(),
	}
}

// devicePool returns the device pool, or an empty pool if there is none.
func (r *Rank) devicePool() *memory.Pool {
	if r.cfg.DevicePages == 0 {
		return new(memory.Pool)
	}
	return r.pools.Pool(placeOfDevice)
}

// Page returns the state of page i of a pool, for oracles. The page numbers of the arena follow the numbers of the
// engine's pool, and the device pool has the last numbers.
func (r *Rank) Page(pool effects.PoolID, i uint32) memory.State {
	return r.pools.Inspect(r.pools.Of(effects.Page{Pool: pool, Index: i}), i)
}

// Ready reports whether the chunk with this key is readable now, and returns its page. For the key of a layer, Ready
// returns the page of that layer.
func (r *Rank) Ready(key []byte) (effects.Page, bool) {
	s := &r.rooms.Store
	if name, layer, err := r.rooms.Landings.Bundles.Name(key, len(key)); err == nil {
		page, ok := s.Ready(s.Find(s.Hash(name), name))
		if !ok {
			return effects.Page{}, false
		}
		frame := r.pools.Of(page).Frame(page, nil)
		if int(layer) >= len(frame) {
			return effects.Page{}, false
		}
		return frame[layer], true
	}
	return s.Ready(s.Find(s.Hash(key), key))
}

// ClaimsOn returns the number of requests for which a chunk is kept.
func (r *Rank) ClaimsOn(key []byte) int {
	s := &r.rooms.Store
	if name, _, err := r.rooms.Landings.Bundles.Name(key, len(key)); err == nil {
		key = name
	}
	return s.ClaimsOn(s.Find(s.Hash(key), key))
}

// Hope reports whether a chunk is readable here, or may become readable because of a fill in flight, a deferred offer
// or a pending request.
func (r *Rank) Hope(key []byte) bool {
	if name, _, err := r.rooms.Landings.Bundles.Name(key, len(key)); err == nil {
		key = name
	}
	return r.rooms.Hope(key)
}

// Fetching reports whether the Fetch with this ticket has begun, that is, waits for no chunk any more.
func (r *Rank) Fetching(t effects.Ticket) bool {
	of := r.tickets.Find(t)
	return of.Owner == kernel.OwnerDeferred && r.rooms.Fetches.Running(of.Subject)
}

// KeyHash returns the hash by which facts (for example FactReady) name a key in this incarnation.
func (r *Rank) KeyHash(key []byte) uint64 { return r.rooms.Store.Hash(key) }

// MarkNames returns every coverage mark of a rank, with its name.
func MarkNames() (all []effects.NamedMark) {
	all = effects.NameMarks(all, "link", link.Marks)
	all = effects.NameMarks(all, "put", put.Marks)
	all = effects.NameMarks(all, "push", push.Marks)
	all = effects.NameMarks(all, "pull", pull.Marks)
	all = effects.NameMarks(all, "engine", engine.Marks)
	all = effects.NameMarks(all, "lease", lease.Marks)
	all = effects.NameMarks(all, "pipeline", staging.Marks)
	all = effects.NameMarks(all, "store", store.Marks)
	all = effects.NameMarks(all, "pending", allocqueue.Marks)
	all = effects.NameMarks(all, "land", landing.Marks)
	all = effects.NameMarks(all, "notice", notice.Marks)
	all = effects.NameMarks(all, "deferred", deferred.Marks)
	all = effects.NameMarks(all, "flow", flow.Marks)
	all = effects.NameMarks(all, "recall", recall.Marks)
	all = effects.NameMarks(all, "loan", loan.Marks)
	all = effects.NameMarks(all, "p2p", p2p.Marks)
	all = effects.NameMarks(all, "bundle", bundle.Marks)
	all = effects.NameMarks(all, "layerwise", layerwise.Marks)
	all = effects.NameMarks(all, "register", register.Marks)
	all = effects.NameMarks(all, "ended", outcomes.Marks)
	all = effects.NameMarks(all, "end", end.Marks)
	return all
}
