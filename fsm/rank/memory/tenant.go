package memory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// Chunks belong to tenants (effects.Tenant), and all peers and the engine may bring chunks of the same tenant. The shares
// of classes and groups therefore do not keep one tenant from filling the pool. PoolConfig.TenantShare limits the pages of
// a tenant while another tenant has pages of the pool, or waits for some. A tenant that is alone may fill the pool.
//
// A page counts for a tenant from the grant or the reservation on until the page is free, or may be evicted for any
// request (MarkEvictable). Nothing is counted in a pool without such a limit.
//
// A tenant without pages may have the pages of one request, even if the request needs more than the share. Otherwise two
// tenants with large requests would wait for each other until both requests expire.

// tenantUse is what counts for one tenant in a pool. Invariant: at least one of pages, promised and waiting is not zero.
type tenantUse struct {
	tenant   effects.Tenant
	pages    uint32 // pages that count for the tenant
	promised uint32 // pages that are promised to chunks of the tenant (PromiseTenant)
	waiting  uint32 // requests that wait for pages
	scan     uint64 `snap:"skip"` // the last scan that found a request of the tenant (MarkTenant)
}

// tenantUses are the tenants that have pages of a pool, or wait for some.
type tenantUses struct {
	rows     table.Slab[tenantUse]
	byTenant table.Index
	scan     uint64 `snap:"skip"` // numbers the scans of waiting requests
}

// tenantWaitersMax bounds the tenants that only wait for pages.
const tenantWaitersMax = 1 << 20

func (x *tenantUses) recycle(pages int) tenantUses {
	return tenantUses{rows: x.rows.Recycle(pages + tenantWaitersMax), byTenant: x.byTenant.Recycle()}
}

// find returns the row of a tenant, or zero.
func (x *tenantUses) find(tenant effects.Tenant) table.Handle {
	for at := x.byTenant.Find(uint64(tenant)); at.Found(); at = x.byTenant.Next(at) {
		if x.rows.Get(at.Handle()).tenant == tenant {
			return at.Handle()
		}
	}
	return 0
}

// findOrAdd returns the row of a tenant, and adds it if there is none.
func (x *tenantUses) findOrAdd(tenant effects.Tenant) (table.Handle, *tenantUse) {
	if h := x.find(tenant); h != 0 {
		return h, x.rows.Get(h)
	}
	h, u := x.rows.Add()
	if u == nil {
		panic("BUG: more tenants wait for pages than requests can")
	}
	*u = tenantUse{tenant: tenant}
	x.byTenant.Add(uint64(tenant), h)
	return h, u
}

// dropTenant removes a row if nothing counts for its tenant any more. Requests that wait are then tried again, because the
// last tenant that remains is not limited.
func (p *Pool) dropTenant(h table.Handle) {
	if u := p.tenants.rows.Get(h); u.pages+u.promised+u.waiting == 0 {
		p.tenants.byTenant.Remove(uint64(u.tenant), h)
		p.tenants.rows.Remove(h)
		p.freedCount++
	}
}

// LimitsTenants reports whether the pages of a tenant are limited in the pool.
func (p *Pool) LimitsTenants() bool { return p.tenantShare < p.TotalPages() }

// SetTenantShare changes the limit of pages of a tenant to a percentage of the pool, which must have such a limit. Nothing is
// taken from a tenant that has more. Requests that wait are tried again.
func (p *Pool) SetTenantShare(pct uint32) {
	if !p.LimitsTenants() || pct >= 100 {
		panic("BUG: a pool begins or ceases to count the pages of tenants")
	}
	p.tenantShare = shareOf(p.TotalPages(), pct)
	p.freedCount++
}

// shareOf returns a percentage of a number of pages, and at least one page.
func shareOf(pages, pct uint32) uint32 { return uint32(max(1, uint64(pages)*uint64(pct)/100)) }

// TenantLimit returns the limit of pages of a tenant, while another tenant has or wants pages.
func (p *Pool) TenantLimit() uint32 { return min(p.TotalPages(), p.tenantShare) }

// TenantUse returns the number of pages that count for a tenant: granted, in quarantine, promised, reserved or kept.
func (p *Pool) TenantUse(tenant effects.Tenant) uint32 {
	if u := p.tenants.rows.Get(p.tenants.find(tenant)); u != nil {
		return u.pages + u.promised
	}
	return 0
}

// FitsTenant reports whether a tenant may have n more pages of the pool.
func (p *Pool) FitsTenant(tenant effects.Tenant, n uint32) bool {
	if !p.LimitsTenants() {
		return true
	}
	used := p.TenantUse(tenant)
	return used == 0 || used+n <= p.tenantShare || !p.hasOtherTenant(tenant)
}

// hasOtherTenant reports whether another tenant has pages of the pool or waits for some.
func (p *Pool) hasOtherTenant(tenant effects.Tenant) bool {
	n := p.tenants.rows.Len()
	return n > 1 || n == 1 && p.tenants.find(tenant) == 0
}

// CountTenant counts pages that are in use for a tenant. Pages that counted for another tenant count for it no more.
func (p *Pool) CountTenant(tenant effects.Tenant, pages []effects.Page) {
	if !p.LimitsTenants() {
		return
	}
	for _, page := range pages {
		pg := p.pageOf(page)
		h, u := p.tenants.findOrAdd(tenant)
		if pg.tenant == h {
			continue
		}
		u.pages++
		p.uncountTenant(pg)
		pg.tenant = h
	}
}

// uncountTenant stops counting a page for its tenant, if it has one.
func (p *Pool) uncountTenant(pg *page) {
	h := pg.tenant
	if h == 0 {
		return
	}
	pg.tenant = 0
	p.tenants.rows.Get(h).pages--
	p.dropTenant(h)
}

// SetGrantTenant counts the pages of a new write grant for a tenant.
func (ps *Pools) SetGrantTenant(id effects.GrantID, tenant effects.Tenant) {
	if g := ps.findGrant(id); g != nil {
		ps.pools[g.poolIndex].CountTenant(tenant, g.pages)
	}
}

// PromiseTenant counts n promised pages (PromisePages) for a tenant, and UnpromiseTenant stops counting them.
func (p *Pool) PromiseTenant(tenant effects.Tenant, n uint32) {
	if p.LimitsTenants() && n > 0 {
		_, u := p.tenants.findOrAdd(tenant)
		u.promised += n
	}
}

// UnpromiseTenant stops counting n pages that PromiseTenant has counted. UnpromiseTenant panics if fewer are counted.
func (p *Pool) UnpromiseTenant(tenant effects.Tenant, n uint32) {
	if !p.LimitsTenants() || n == 0 {
		return
	}
	h := p.tenants.find(tenant)
	u := p.tenants.rows.Get(h)
	if u == nil || u.promised < n {
		panic("BUG: a tenant's promise of pages ended twice")
	}
	u.promised -= n
	p.dropTenant(h)
}

// AddTenantWaiter counts a request that waits for pages of the pool. The result is for DropTenantWaiter.
func (p *Pool) AddTenantWaiter(tenant effects.Tenant) table.Handle {
	if !p.LimitsTenants() {
		return 0
	}
	h, u := p.tenants.findOrAdd(tenant)
	u.waiting++
	return h
}

// DropTenantWaiter stops counting a request that AddTenantWaiter has counted.
func (p *Pool) DropTenantWaiter(h table.Handle) {
	if h != 0 {
		p.tenants.rows.Get(h).waiting--
		p.dropTenant(h)
	}
}

// BeginTenantScan begins a scan of waiting requests: no tenant is marked.
func (p *Pool) BeginTenantScan() { p.tenants.scan++ }

// MarkTenant marks the tenant of a waiting request, as AddTenantWaiter returned it, and IsTenantMarked reports whether it
// is marked in this scan. Requests of a marked tenant stay behind the request for which it was marked.
func (p *Pool) MarkTenant(h table.Handle) { p.tenants.rows.Get(h).scan = p.tenants.scan }

// IsTenantMarked reports whether MarkTenant was called since BeginTenantScan.
func (p *Pool) IsTenantMarked(h table.Handle) bool {
	u := p.tenants.rows.Get(h)
	return u != nil && u.scan == p.tenants.scan
}

// recountTenants counts the pages of each tenant again by the pages, and the promised pages by the promises of the pool.
func (p *Pool) recountTenants(r *table.Recount) {
	x := &p.tenants
	slots := int(x.rows.Slots())
	for k := range p.pages {
		if h := p.pages[k].tenant; h != 0 {
			r.Add(int(h.Slot()), 1)
		}
	}
	promised := 0
	r.Report("pages by tenant", slots, func(slot int) int {
		if u := x.rows.Get(x.rows.At(int32(slot))); u != nil {
			promised += int(u.promised)
			return int(u.pages)
		}
		return 0
	}, table.Bounded)
	if p.LimitsTenants() {
		r.Add(0, int(p.promisedPages))
	}
	r.Report("promised pages of tenants", 1, func(int) int { return promised }, table.Bounded)
}
