package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/end"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/flows/layerwise"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// Which tenants nodes have, and which the keys in messages and commands have, where a plan lists tenants.

// tenantsOf returns tenants by their numbers in the plan.
func tenantsOf(numbers []uint32) (list []effects.Tenant) {
	for _, n := range numbers {
		list = append(list, world.TenantOf(n))
	}
	return list
}

// OwnTenants returns the tenants whose chunks a node may hold; nil: all.
func (w *Cluster) OwnTenants(n *world.Node) *effects.Tenants {
	t := &w.SourcePlan.Topology
	if !slices.Contains(t.Limited, plan.Node(n.ID)) {
		return nil
	}
	return effects.NewTenants(tenantsOf(t.Tenants[n.ID])...)
}

// lacksTenant reports whether a message to n names a chunk or a request of a tenant that its sender or n lacks.
func (w *Cluster) lacksTenant(n *world.Node, e *effects.Received) bool {
	if len(w.SourcePlan.Topology.Tenants) == 0 {
		return false
	}
	own := InfoOf(n).Cfg.Tenants
	var end protocol.EndRequest
	if e.Channel == effects.ChannelAlloc && end.Decode(e.Body, &WireLimits) == nil {
		return !e.Tenants.Has(effects.Tenant(end.Tenant)) || !own.Has(effects.Tenant(end.Tenant))
	}
	return slices.ContainsFunc(KeysIn(e.Channel, e.Body), func(key []byte) bool {
		tenant := effects.Tenant(protocol.TenantOf(key))
		return !e.Tenants.Has(tenant) || !own.Has(tenant)
	})
}

// KeysIn returns the keys that a request on a channel names.
func KeysIn(channel effects.Channel, body []byte) [][]byte {
	var alloc protocol.AllocRequest
	var offer protocol.PullReadyNotif
	var query protocol.CacheQueryRequest
	var get protocol.AscendBatchedLookupAndGetMsg
	switch channel {
	case effects.ChannelAlloc:
		if alloc.Decode(body, &WireLimits) == nil {
			return alloc.Keys
		}
		if offer.Decode(body, &WireLimits) == nil {
			return offer.Keys
		}
	case effects.ChannelQuery:
		if query.Decode(body, &WireLimits) == nil {
			return query.Keys
		}
	case effects.ChannelLookup:
		if get.Decode(body, &WireLimits) == nil {
			return get.Keys
		}
	default:
	}
	return nil
}

// LacksOwnTenant reports whether a command names chunks or a request of a tenant that its node lacks.
func LacksOwnTenant(n *world.Node, body effects.CommandBody) bool {
	own := InfoOf(n).Cfg.Tenants
	if c, ok := body.(*ops.End); ok {
		return !own.Has(c.Tenant)
	}
	return own != nil && slices.ContainsFunc(keysOfCommand(body), func(key []byte) bool {
		return !own.Has(effects.Tenant(protocol.TenantOf(key)))
	})
}

// keysOfCommand returns the keys that a command names.
func keysOfCommand(body effects.CommandBody) [][]byte {
	switch c := body.(type) {
	case *engine.Put:
		return c.Keys
	case *engine.Get:
		return c.Keys
	case *engine.Contains:
		return c.Keys
	case *engine.Store:
		return c.Keys
	case *engine.Share:
		return c.Keys
	case *engine.Fetch:
		return c.Keys
	case *recall.Recall:
		return c.Keys
	case *layerwise.Save:
		return c.Keys
	case *p2p.Bring:
		return c.Keys
	case *p2p.Locate:
		return c.Keys
	}
	return nil
}
