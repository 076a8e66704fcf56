package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The pages of a tenant are limited while another tenant has pages or waits for some (rank.Memory.TenantSharePct).

var checkTenantPages = oracle.NewCheck("S18", "shares of pages, by tenant")

// tenantShareOracle judges each tenant's share of a pool: pages under grants, pages that landed and are kept, pages that
// are read into, and pages that the engine has reserved (S18).
type tenantShareOracle struct {
	oracleBase
	perIncarnation[tenantShareState]
}

func (*tenantShareOracle) subscribe(l *oracle.Subscriptions[tenantShareOracle]) {
	oracle.On(l, func(o *tenantShareOracle, _ *oracle.Call, e pd.ReserveOutcome) {
		if e.Effect.Code == effects.OK {
			o.verifyTaken(e.Node, tenantOfReserve(e.Command), len(e.Effect.Pages), 0, "reserves")
		}
	})
}

// tenantShareState records the tenants of the grants of an incarnation of a node.
type tenantShareState struct {
	grants map[effects.GrantID]effects.Tenant `snap:"skip"`
}

func (s *tenantShareState) clearForReuse() { *s = tenantShareState{grants: world.RecycleMap(s.grants)} }

// hasTenantShares reports whether n limits the share of the pool that a tenant may have.
func hasTenantShares(n *world.Node) bool {
	pct := pd.InfoOf(n).Cfg.TenantSharePct
	return pct > 0 && pct < 100
}

// tenantShare returns how many pages a tenant may have while another tenant has or wants pages.
func tenantShare(n *world.Node) int {
	return max(1, int(pd.InfoOf(n).Cfg.Pages)*int(pd.InfoOf(n).Cfg.TenantSharePct)/100)
}

// tenantOfKeys returns the tenant of the keys of a message.
func tenantOfKeys(keys [][]byte) effects.Tenant {
	if len(keys) == 0 {
		return 0
	}
	return effects.Tenant(protocol.TenantOf(keys[0]))
}

// tenantOfReserve returns the tenant for which an engine has reserved pages.
func tenantOfReserve(c *pd.Command) effects.Tenant {
	if r, ok := c.Body.(*engine.Reserve); ok {
		return r.Tenant
	}
	return 0
}

// recordGrant records the tenant of a new grant, and judges its share. Pages that were promised before count where they
// were promised.
func (or *tenantShareOracle) recordGrant(n *world.Node, w *pendingRequest, g *world.Grant) {
	if !hasTenantShares(n) {
		return
	}
	state := or.stateOf(n)
	if state.grants == nil {
		state.grants = map[effects.GrantID]effects.Tenant{}
	}
	if state.grants[g.ID] = w.tenant; w.continued {
		or.countVoid(checkTenantPages)
		return
	}
	or.verifyTaken(n, w.tenant, len(g.Pages), 0, "grants")
}

// verifyTaken checks that a tenant has no more pages than its share after it got some, while another tenant has pages. A
// tenant without other pages may have those of one request. unseen is how many of the new pages countPages leaves out.
func (or *tenantShareOracle) verifyTaken(n *world.Node, tenant effects.Tenant, pages, unseen int, how string) {
	if !hasTenantShares(n) || pages == 0 {
		return
	}
	own, others := or.countPages(n, tenant)
	if own += unseen; others == 0 || own == pages {
		or.countVoid(checkTenantPages)
		return
	}
	if or.countJudged(checkTenantPages); own > tenantShare(n) {
		or.fail(checkTenantPages, "node %d "+how+" %d pages for tenant %s, which has %d now, of at most %d", n.AsSubject(), pages,
			tenant, own, tenantShare(n))
	}
}

// countPages counts the pages that are certainly in use for a tenant, and those that certainly are for other tenants.
func (or *tenantShareOracle) countPages(n *world.Node, tenant effects.Tenant) (own, others int) {
	for i := range min(len(n.Pool.Pages), int(pd.InfoOf(n).Cfg.Pages)) {
		pg := &n.Pool.Pages[i]
		var of effects.Tenant
		known := true
		switch {
		case pg.Reserved != 0:
			of = tenantOfReserve(&or.w.Commands[pg.Reserved-1])
		case pg.Granted != 0:
			of, known = or.stateOf(n).grants[pg.Granted]
			// The pages of a grant that has expired may have been taken back in this step.
			g := n.Grants[pg.Granted]
			known = known && g != nil && !g.Revoking && or.w.ReadClock(n) < g.ExpiresAt
		default:
			if known = !n.IsCache && or.oracles().pageShares.isKeptPage(n, uint32(i)); known {
				of = effects.Tenant(protocol.TenantOf(or.w.Keys[pg.Stamps[0].Key()]))
			}
		}
		switch {
		case !known:
		case of == tenant:
			own++
		default:
			others++
		}
	}
	return own, others
}

// mayExceed reports whether the share of a tenant may keep it from a number of pages, so that a request waits.
func (or *tenantShareOracle) mayExceed(n *world.Node, s *rank.Stats, tenant effects.Tenant, pages int) bool {
	if !hasTenantShares(n) || len(or.w.SourcePlan.Topology.KeyTenants) == 0 {
		return false
	}
	own, others := or.countPages(n, tenant)
	used := s.PagesTotal - s.PagesFree - s.PagesEvictable
	if own >= used && !or.hasOtherWaiter(n, tenant) {
		return false // No other tenant has or wants pages.
	}
	used = min(used, s.PagesTotal-others)
	return used > 0 && used+pages > tenantShare(n)
}

// hasOtherWaiter reports whether a request or a reservation for another tenant waits for pages.
func (or *tenantShareOracle) hasOtherWaiter(n *world.Node, tenant effects.Tenant) bool {
	return slices.ContainsFunc(or.oracles().queue.stateOf(n).pending, func(o pendingRequest) bool {
		return o.keyCount > 0 && o.tenant != tenant
	}) || slices.ContainsFunc(or.oracles().dualRole.stateOf(n).pending, func(t effects.Ticket) bool {
		return !or.w.Commands[t-1].Finished && tenantOfReserve(&or.w.Commands[t-1]) != tenant
	})
}

// heldBack reports whether the share of its tenant may keep a request, or an earlier one of the same tenant and the same
// peer, from pages. Requests for other tenants may then be served before it.
func (or *queueOracle) heldBack(n *world.Node, i int) bool {
	if !hasTenantShares(n) {
		return false
	}
	s, state := pd.StatsOf(n), or.stateOf(n)
	for k := range state.pending[:i+1] {
		o := &state.pending[k]
		if o.keyCount > 0 && o.tenant == state.pending[i].tenant && o.isSameClass(&state.pending[i]) &&
			or.oracles().tenantShares.mayExceed(n, &s, o.tenant, o.pageCount) {
			return true
		}
	}
	return false
}
