package rank

import (
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Tables visits the tables of all rooms and flows with their sizes, for checks that nothing was left behind.
func (r *Rank) Tables(visit table.Visit) {
	pool, arena, device := r.pools.Pool(0), r.pools.Pool(HostPool), r.devicePool()
	visit("grants", r.pools.Grants(), table.Empty)
	visit("granted pages", int(pool.Granted()+arena.Granted()+device.Granted()), table.Empty)
	visit("quarantined pages", int(pool.Quarantined()+arena.Quarantined()+device.Quarantined()), table.Empty)
	visit("leased pages", int(pool.Lent()+arena.Lent()+device.Lent()), table.Empty)
	visit("arena pages", int(arena.Total()-arena.Free()), table.Empty)
	told, asked := r.registrar.Owed(), r.p2pRequester.Seeks.Lookups().Owed()
	visit("effects outstanding", r.corrs.Len()-told-asked, table.Empty)
	visit("words of directories awaited", told+asked, table.Bounded) // A heartbeat may be in flight at any time.
	r.registrar.Tables(visit)
	r.links.Tables(visit)
	r.commands.Tables(visit)
	visit("breakers", r.breakers.Len(), table.Bounded)
	r.owner(kernel.OwnerPending).Tables(visit)
	for _, of := range r.flows.all {
		r.owner(of).Tables(visit)
	}
}

// Conns returns the number of connections that the rank has open: connections of links as they are bound, and the
// remaining connections as their rooms count them.
func (r *Rank) Conns() int {
	return r.conns.But(kernel.OwnerNotices, kernel.OwnerLease) + r.commands.Conns() + r.pullTarget.Conns()
}

// Linked returns the number of links that the rank has to the pages of peers.
func (r *Rank) Linked() int { return r.links.Linked() }
