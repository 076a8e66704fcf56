package memory

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"pgregory.net/rapid"
)

// The two tenants of these tests.
const (
	tenantA effects.Tenant = 0xA
	tenantB effects.Tenant = 0xB
)

// newTenantPool returns a pool of 8 pages, of which a tenant may have 4.
func newTenantPool(t *testing.T) (*Pools, *Pool) {
	ps := New(16, 3, prng.Shuffle{}, PoolConfig{Pages: 8, ClassShare: 8, TenantShare: 4})
	t.Cleanup(func() { wantRecounted(t, &ps) })
	return &ps, ps.Pool(0)
}

// grantFor grants a class n pages for the chunks of a tenant.
func grantFor(ps *Pools, tenant effects.Tenant, class, n int) effects.GrantID {
	id := grantTo(ps, class, n)
	ps.SetGrantTenant(id, tenant)
	return id
}

// A tenant has no more than its share while another tenant has pages or waits for some, whichever peer or command brings
// the chunks, and in whatever state the pages are.
func TestTenantHasAShare(t *testing.T) {
	ps, p := newTenantPool(t)
	ps.QuarantineGrant(grantFor(ps, tenantA, 1, 1))
	id := grantFor(ps, tenantA, 2, 1)
	landed := append([]effects.Page(nil), ps.PagesOf(id)...)
	ps.LandPage(id, landed[0])
	ps.EndGrant(id)
	p.CountTenant(tenantA, p.TakePages(1, nil))
	if !p.FitsTenant(tenantA, 5) || p.TenantUse(tenantA) != 3 {
		t.Errorf("a tenant that is alone is limited, or has %d pages", p.TenantUse(tenantA))
	}
	waiter := p.AddTenantWaiter(tenantB)
	if !p.FitsTenant(tenantA, 1) || p.FitsTenant(tenantA, 2) || !p.FitsTenant(tenantB, 5) {
		t.Errorf("while another tenant waits, 1 more page fits: %t, 2: %t; 5 fit the other: %t", p.FitsTenant(tenantA, 1),
			p.FitsTenant(tenantA, 2), p.FitsTenant(tenantB, 5))
	}
	ps.PromisePages(p, 1, 1)
	p.PromiseTenant(tenantB, 1)
	p.DropTenantWaiter(waiter)
	if p.FitsTenant(tenantA, 2) || p.TenantUse(tenantB) != 1 || p.FitsTenant(tenantB, 4) {
		t.Errorf("a promise does not count: %d pages", p.TenantUse(tenantB))
	}
	before := ps.FreedCount()
	ps.UnpromisePages(p, 1, 1)
	p.UnpromiseTenant(tenantB, 1)
	if !p.FitsTenant(tenantA, 5) || ps.FreedCount() == before {
		t.Error("the limit outlives the other tenant")
	}
	p.CountTenant(tenantB, landed) // A command names the page for a chunk of the other tenant.
	if p.TenantUse(tenantA) != 2 || p.TenantUse(tenantB) != 1 {
		t.Errorf("after a page has moved the tenants have %d and %d pages", p.TenantUse(tenantA), p.TenantUse(tenantB))
	}
	p.MarkEvictable(landed[0]) // Any tenant can have the page now.
	if p.TenantUse(tenantB) != 0 || !p.FitsTenant(tenantA, 5) {
		t.Errorf("a page that may be evicted counts: %d", p.TenantUse(tenantB))
	}
}

// A tenant without pages gets the pages of one request that is larger than the share, because otherwise two such requests
// would keep each other waiting.
func TestTenantGetsOneLargeRequest(t *testing.T) {
	_, p := newTenantPool(t)
	a, b := p.AddTenantWaiter(tenantA), p.AddTenantWaiter(tenantB)
	defer p.DropTenantWaiter(a)
	defer p.DropTenantWaiter(b)
	if !p.FitsTenant(tenantA, 6) {
		t.Error("a request for 6 pages of a tenant without pages does not fit")
	}
	p.CountTenant(tenantA, p.TakePages(1, nil))
	if p.FitsTenant(tenantA, 6) || p.FitsTenant(tenantA, 4) || !p.FitsTenant(tenantA, 3) {
		t.Error("a tenant with a page gets more than its share")
	}
}

// A pool whose pages a tenant may have all counts nothing.
func TestTenantsWithoutLimit(t *testing.T) {
	ps := New(16, 2, prng.Shuffle{}, PoolConfig{Pages: 8, ClassShare: 8})
	p := ps.Pool(0)
	grantFor(&ps, tenantA, 1, 5)
	if h := p.AddTenantWaiter(tenantB); h != 0 || p.LimitsTenants() || p.TenantUse(tenantA) != 0 || !p.FitsTenant(tenantA, 3) {
		t.Errorf("%d pages count", p.TenantUse(tenantA))
	}
	wantRecounted(t, &ps)
}

// Whatever is granted, landed, reserved, moved, spared and freed: the counts of tenants are what the pages say.
func TestTenantsAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := New(16, 2, prng.Shuffle{}, PoolConfig{Pages: 12, ClassShare: 12, TenantShare: 5})
		p := ps.Pool(0)
		var grants []effects.GrantID
		var kept []effects.Page
		var waiters []table.Handle
		tenant := func(t *rapid.T) effects.Tenant { return effects.Tenant(rapid.IntRange(0, 3).Draw(t, "tenant")) }
		take := func(t *rapid.T, n int) int {
			if n == 0 {
				t.Skip("none")
			}
			return rapid.IntRange(0, n-1).Draw(t, "which")
		}
		t.Repeat(map[string]func(*rapid.T){
			"grant": func(t *rapid.T) {
				of, n := tenant(t), rapid.Uint32Range(1, 3).Draw(t, "n")
				if p.FitsTenant(of, n) && ps.CanGrantPages(p, 1, n) {
					id, _ := ps.GrantPages(p, 1, make([]uint32, n), nil, kernel.Ref{})
					ps.SetGrantTenant(id, of)
					grants = append(grants, id)
				}
			},
			"land": func(t *rapid.T) {
				id := grants[take(t, len(grants))]
				for _, pg := range ps.PagesOf(id) {
					if _, ok := ps.LandPage(id, pg); ok {
						kept = append(kept, pg)
						return
					}
				}
			},
			"end": func(t *rapid.T) {
				i := take(t, len(grants))
				ps.EndGrant(grants[i])
				grants = append(grants[:i:i], grants[i+1:]...)
			},
			"reserve": func(t *rapid.T) {
				if of := tenant(t); p.FitsTenant(of, 1) && p.FreePages() > 0 {
					kept = p.TakePages(1, kept)
					p.CountTenant(of, kept[len(kept)-1:])
				}
			},
			"name": func(t *rapid.T) {
				i := take(t, len(kept))
				p.CountTenant(tenant(t), kept[i:i+1])
			},
			"spare": func(t *rapid.T) { p.MarkEvictable(kept[take(t, len(kept))]) },
			"drop": func(t *rapid.T) {
				i := take(t, len(kept))
				p.DropRef(kept[i])
				kept = append(kept[:i:i], kept[i+1:]...)
			},
			"wait": func(t *rapid.T) { waiters = append(waiters, p.AddTenantWaiter(tenant(t))) },
			"serve": func(t *rapid.T) {
				i := take(t, len(waiters))
				p.DropTenantWaiter(waiters[i])
				waiters = append(waiters[:i:i], waiters[i+1:]...)
			},
			"": func(t *rapid.T) {
				wantRecounted(t, &ps)
				if rows := p.tenants.rows.Len(); rows > 4 || rows == 0 && len(waiters) > 0 {
					t.Errorf("%d tenants have rows", rows)
				}
			},
		})
	})
}
