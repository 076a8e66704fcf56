package rank

import (
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// Tables shows what is in the tables of all rooms, for those who look for what was left behind.
func (r *Rank) Tables(visit table.Visit) {
	pool, arena, device := r.pools.Pool(0), r.pools.Pool(HostPool), r.devicePool()
	visit("grants", r.pools.Grants(), table.Empty)
	visit("granted pages", int(pool.Granted()+arena.Granted()+device.Granted()), table.Empty)
	visit("quarantined pages", int(pool.Quarantined()+arena.Quarantined()+device.Quarantined()), table.Empty)
	visit("leased pages", int(pool.Lent()+arena.Lent()+device.Lent()), table.Empty)
	visit("arena pages", int(arena.Total()-arena.Free()), table.Empty)
	told, asked := r.registrar.Owed(), r.p2pRequester.Seeks.Lookups().Owed()
	visit("effects outstanding", r.corrs.Len()-told-asked, table.Empty)
	visit("words of directories awaited", told+asked, table.Bounded) // A heartbeat's at any time.
	r.registrar.Tables(visit)
	r.links.Tables(visit)
	r.commands.Tables(visit)
	visit("breakers", r.breakers.Len(), table.Bounded)
	r.owner(kernel.OwnerPending).Tables(visit)
	for _, of := range r.flows.all {
		r.owner(of).Tables(visit)
	}
}

// Conns is how many connections the rank has open: those of links as they are bound, others as their rooms know them.
func (r *Rank) Conns() int {
	return r.conns.But(kernel.OwnerNotices, kernel.OwnerLease) + r.commands.Conns() + r.pullTarget.Conns()
}

// Linked is how many links to peers' pages the rank has.
func (r *Rank) Linked() int { return r.links.Linked() }
