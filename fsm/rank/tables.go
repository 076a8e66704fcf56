package rank

import (
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// VisitTables visits the tables of all rooms and flows with their sizes, for checks that nothing was left behind.
func (r *Rank) VisitTables(visit table.VisitFunc) {
	pool, arena, device := r.pools.Pool(0), r.pools.Pool(ArenaPool), r.devicePool()
	visit("grants", r.pools.CountGrants(), table.Empty)
	visit("granted pages", int(pool.GrantedPages()+arena.GrantedPages()+device.GrantedPages()), table.Empty)
	visit("quarantined pages", int(pool.QuarantinedPages()+arena.QuarantinedPages()+device.QuarantinedPages()), table.Empty)
	visit("leased pages", int(r.pools.LeasedPages()), table.Empty)
	visit("arena pages", int(arena.TotalPages()-arena.FreePages()), table.Empty)
	reportsAwaited, lookupsAwaited := r.registrar.CountOutstanding(), r.p2pRequester.Searches.Lookups().CountOutstanding()
	visit("effects outstanding", r.corrs.Len()-reportsAwaited-lookupsAwaited, table.Empty)
	visit("words of directories awaited", reportsAwaited+lookupsAwaited, table.Bounded) // A heartbeat may be in flight at any time.
	r.registrar.VisitTables(visit)
	r.links.VisitTables(visit)
	r.commands.VisitTables(visit)
	visit("breakers", r.breakers.Len(), table.Bounded)
	r.flowOf(kernel.OwnerAllocQueue).VisitTables(visit)
	for _, owner := range r.flows.all {
		r.flowOf(owner).VisitTables(visit)
	}
}

// CountConns returns the number of connections that the rank has open: connections of links as they are bound, and the
// remaining connections as their rooms count them.
func (r *Rank) CountConns() int {
	return r.conns.CountExcept(kernel.OwnerNotices, kernel.OwnerLease) + r.commands.CountConns() + r.pullTarget.Conns()
}

// CountLinks returns the number of links that the rank has to the pages of peers.
func (r *Rank) CountLinks() int { return r.links.CountLinks() }
