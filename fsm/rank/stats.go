package rank

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory"
)

// Stats counts what is in the rank's tables. Pages are the engine's, unless the field's comment says otherwise.
// PagesGranted and PagesQuarantined include the device pool; PagesLeased includes the device pool and the arena, from
// which peers read if there is an arena.
type Stats struct {
	PagesTotal, PagesFree, PagesGranted, PagesQuarantined, PagesLeased int
	PagesLeasedMax                                                     int // maximum since the start
	PagesEvictable                                                     int // that only the cache needs
	ArenaTotal, ArenaFree                                              int // pages of the arena
	DeviceTotal, DeviceFree                                            int // pages of the device pool
	DeviceEvictable                                                    int // that only the cache needs
	Pinned                                                             int // pins of pages for peers
	Puts, Reserves, Requests, Tombstones                               int
	Gets, PendingRequests, Grants, Entries, Claims, Fills              int
	Offers, Locations, Fetches, Staged                                 int // delayed pull
	StagedMax                                                          int // maximum of Staged since the start
	OutboundPeers, InboundPeers, Outstanding, Deadlines                int
	Brings                                                             int // of shared chunks, ended or not
	Receptions, LeasedBatches, Registrations                           int // for registered blocks
	Layers, Bundles, PagesPromised                                     int // layerwise: requests, chunks, promised pages
	// Operations counts the operations of grants that are in force, and Retries the operations of pending requests.
	// Retries of requests are recognized by both.
	Operations, Retries int
}

// Stats returns the current counts.
func (r *Rank) Stats() Stats {
	rooms, pipe := &r.sharedRooms, r.sharedRooms.Fetches.Pipeline()
	requests, tombstones := r.commands.CountRequests()
	pool, arena, device, deviceEvictable := r.pools.Pool(0), r.pools.Pool(ArenaPool), r.devicePool(), 0
	if device.TotalPages() > 0 {
		deviceEvictable = int(rooms.Store.EvictablePages(device))
	}
	return Stats{
		PagesTotal: int(pool.TotalPages()), PagesFree: int(pool.FreePages()),
		PagesGranted:     int(pool.GrantedPages() + device.GrantedPages()),
		PagesQuarantined: int(pool.QuarantinedPages() + device.QuarantinedPages()),
		PagesLeased:      int(r.pools.LeasedPages()),
		PagesLeasedMax:   int(r.pools.MaxLeasedPages()),
		ArenaTotal:       int(arena.TotalPages()), ArenaFree: int(arena.FreePages()),
		DeviceTotal: int(device.TotalPages()), DeviceFree: int(device.FreePages()), DeviceEvictable: deviceEvictable,
		Pinned: r.p2pOwner.Loans().CountPins() + r.recallTarget.Loans().CountPins(),
		Puts:   r.pushSource.Len() + r.pullSource.Len(), Reserves: r.commands.CountReserves(), Requests: requests,
		Tombstones: tombstones,
		Gets:       rooms.Gets.Len(), PendingRequests: rooms.Pending.Len(), Grants: r.pools.CountGrants(),
		PagesEvictable: int(rooms.Store.EvictablePages(pool)), Entries: rooms.Store.CountEntries(), Claims: rooms.Store.CountClaims(),
		Fills:  int(pool.GrantedPages() + pool.QuarantinedPages() + device.GrantedPages() + device.QuarantinedPages()),
		Offers: rooms.Deferred.Len(), Locations: rooms.Store.CountLocations(), Fetches: rooms.Fetches.Len(),
		Staged: int(pipe.StagedPages()), StagedMax: int(pipe.MaxStagedPages()),
		OutboundPeers: r.links.CountOutbound(), InboundPeers: r.links.CountInbound(), Outstanding: r.corrs.Len(), Deadlines: r.timers.Len(),
		Brings:     r.p2pRequester.Len(),
		Receptions: r.consumer.Len(), LeasedBatches: r.producer.Batches(), Registrations: r.producer.Registrations(),
		Layers: r.layers.Len(), Bundles: rooms.Landings.Bundles.Len(), PagesPromised: int(pool.PromisedPages()),
		Operations: rooms.Landings.CountOperations(), Retries: rooms.Pending.CountOperations(),
	}
}

// devicePool returns the device pool, or an empty pool if there is none.
func (r *Rank) devicePool() *memory.Pool {
	if r.cfg.DevicePages == 0 {
		return new(memory.Pool)
	}
	return r.pools.Pool(devicePoolIndex)
}

// PageState returns the state of page i of a pool, for oracles. The page numbers of the arena follow the numbers of the
// engine's pool, and the device pool has the last numbers.
func (r *Rank) PageState(pool effects.PoolID, i uint32) memory.State {
	return r.pools.InspectPage(r.pools.PoolOf(effects.Page{Pool: pool, Index: i}), i)
}

// ReadyPage reports whether the chunk with this key is readable now, and returns its page. For the key of a layer,
// ReadyPage returns the page of that layer.
func (r *Rank) ReadyPage(key []byte) (effects.Page, bool) {
	s := &r.sharedRooms.Store
	if name, layer, err := r.sharedRooms.Landings.Bundles.ParseLayerKey(key, len(key)); err == nil {
		page, ok := s.ReadyPage(s.Find(s.HashKey(name), name))
		if !ok {
			return effects.Page{}, false
		}
		frame := r.pools.PoolOf(page).AppendFrame(page, nil)
		if int(layer) >= len(frame) {
			return effects.Page{}, false
		}
		return frame[layer], true
	}
	return s.ReadyPage(s.Find(s.HashKey(key), key))
}

// ReadyPageIn reports whether the chunk that a peer of a trust domain sent with this key is readable now, and returns its
// page.
func (r *Rank) ReadyPageIn(realm effects.Realm, key []byte) (effects.Page, bool) {
	s := &r.sharedRooms.Store
	return s.ReadyPage(s.Find(s.HashIn(realm, key), key))
}

// CountClaimsOn returns the number of requests for which a chunk is kept.
func (r *Rank) CountClaimsOn(key []byte) int {
	s := &r.sharedRooms.Store
	if name, _, err := r.sharedRooms.Landings.Bundles.ParseLayerKey(key, len(key)); err == nil {
		key = name
	}
	return s.CountClaimsOn(s.Find(s.HashKey(key), key))
}

// MayArrive reports whether a chunk is readable here, or may become readable because of a fill in flight, a deferred
// offer or a pending request.
func (r *Rank) MayArrive(key []byte) bool {
	if name, _, err := r.sharedRooms.Landings.Bundles.ParseLayerKey(key, len(key)); err == nil {
		key = name
	}
	return r.sharedRooms.MayArrive(key)
}

// IsFetching reports whether the Fetch with this ticket has begun, that is, waits for no chunk any more.
func (r *Rank) IsFetching(t effects.Ticket) bool {
	ref := r.tickets.Find(t)
	return ref.Owner == kernel.OwnerDeferred && r.sharedRooms.Fetches.IsRunning(ref.Subject)
}

// KeyHash returns the hash by which facts (for example FactReady) name a key in this incarnation.
func (r *Rank) KeyHash(key []byte) uint64 { return r.sharedRooms.Store.HashKey(key) }

// KeyHashIn returns the hash by which facts name a chunk that a peer of a trust domain sent with this key.
func (r *Rank) KeyHashIn(realm effects.Realm, key []byte) uint64 {
	return r.sharedRooms.Store.HashIn(realm, key)
}
