package rank

import (
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/memory"
)

// SetTenantShare changes TenantSharePct while the rank works. Pct must be below 100, and so must the present value: only
// then are the pages of tenants counted. Nothing is taken from a tenant that has more than the new share; it gets no
// further pages until it has less.
type SetTenantShare struct{ Pct uint32 }

// IsCommand marks SetTenantShare as a command body.
func (*SetTenantShare) IsCommand() {}

func (r *Rank) onSetTenantShare(e *flow.Env, t effects.Ticket, c *SetTenantShare) {
	if now := r.cfg.TenantSharePct; c.Pct == 0 || c.Pct >= 100 || now == 0 || now >= 100 {
		e.Out.Deliver(effects.Deliver{Ticket: t, Code: effects.Invalid, Why: &effects.Why{
			Stage: effects.StageCommand, Field: "tenant_share_pct", Theirs: strconv.Itoa(int(c.Pct)), Ours: strconv.Itoa(int(now)),
			Remedy: "restart the node to begin or to cease limiting tenants",
		}})
		return
	}
	for _, p := range [...]*memory.Pool{e.Pool, r.devicePool()} {
		if p.LimitsTenants() {
			p.SetTenantShare(c.Pct)
		}
	}
	e.Out.Deliver(effects.Deliver{Ticket: t})
}
