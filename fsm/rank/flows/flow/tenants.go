package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// The functions of this file are the doors of tenants (S31). The tenant of a chunk is a part of the text of its key, and
// the store compares texts, so nothing behind the doors can take a chunk of one tenant for a chunk of another. Each
// message that names keys passes CheckTenants before anything is looked up, so that no answer depends on what is here.

// CheckTenants returns nil if the sender of a message may touch the chunks of all given keys and this rank may hold them.
// Otherwise CheckTenants returns the reason for the refusal of the whole message: an answer about a part of the keys
// would say which of the other chunks are here.
func (e *Env) CheckTenants(ev *effects.Received, keys [][]byte) *effects.Why {
	if ev.Tenants == nil && e.Cfg.Tenants == nil {
		return nil
	}
	for _, key := range keys {
		if why := e.CheckTenant(ev, effects.Tenant(protocol.TenantOf(key))); why != nil {
			return why
		}
	}
	return nil
}

// CheckTenant is CheckTenants for a message that names a request of a tenant.
func (e *Env) CheckTenant(ev *effects.Received, tenant effects.Tenant) *effects.Why {
	switch {
	case !ev.Tenants.Has(tenant):
		e.Out.Mark(Marks.TenantForbidden)
		return &effects.Why{
			Field: "tenant", Theirs: tenant.String(), Ours: "one of " + ev.Tenants.String(),
			Remedy: "give the tenant to the identity in security.policy of the end that refuses",
		}
	case !e.Cfg.Tenants.Has(tenant): // The reason does not tell the peer of the other tenants of this rank.
		e.Out.Mark(Marks.TenantForbidden)
		return &effects.Why{
			Field: "tenant", Theirs: tenant.String(), Ours: "a tenant of this node",
			Remedy: "send to a node of the tenant, or add the tenant to tenants of this node",
		}
	}
	return nil
}

// CheckOwnTenants checks that this rank may hold the chunks of the given keys, which its engine names.
func (e *Env) CheckOwnTenants(keys [][]byte) (effects.Code, *effects.Why) {
	if e.Cfg.Tenants == nil {
		return effects.OK, nil
	}
	for i, key := range keys {
		if code, why := e.CheckOwnTenant(effects.Tenant(protocol.TenantOf(key))); code != effects.OK {
			why.Field, why.Theirs = EntryName("Keys", i), "a key of tenant "+why.Theirs
			return code, why
		}
	}
	return effects.OK, nil
}

// CheckOwnTenant is CheckOwnTenants for a request of a tenant, which the engine names.
func (e *Env) CheckOwnTenant(tenant effects.Tenant) (effects.Code, *effects.Why) {
	if e.Cfg.Tenants.Has(tenant) {
		return effects.OK, nil
	}
	e.Out.Mark(Marks.OtherTenant)
	return effects.Forbidden, &effects.Why{
		Field: "Tenant", Theirs: tenant.String(), Ours: "one of " + e.Cfg.Tenants.String(),
		Remedy: "add the tenant to tenants, or use a node of the tenant",
	}
}
