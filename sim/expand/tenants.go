package expand

import (
	"slices"

	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// TenantsProfile is the profile in which chunks belong to tenants. Its plans are those of the profile trust, with
// tenants.
const TenantsProfile = "tenants"

// tenantsBases lists the profiles in which the plans are drawn. Registrations are left out, because they name no keys.
//
//kvferry:table
var tenantsBases = []string{
	"swarm", "fenced", "leased", "pull", "delayed", "full", "both", "cache", "recall", "recall", "p2p", "p2p", "layerwise", "crash",
}

// TenantsBase returns the profile in which the plan of a seed is drawn before identities and tenants are.
func TenantsBase(seed uint64) string {
	return tenantsBases[draw.Hash(seed, draw.Plan, 46, 0).Below(uint64(len(tenantsBases)))]
}

// AddTenants draws the tenants of the chunks, and the tenants of the nodes. Most nodes have the tenants of all chunks
// that they are to send or receive; from some the policy withholds a tenant.
func AddTenants(p *plan.Plan) {
	at := func(n uint64) draw.Value { return draw.Hash(p.Seed, draw.Plan, 46, n) }
	p.Profile = TenantsProfile
	t := &p.Topology
	t.KeyTenants = drawKeyTenants(p, at)
	if at(1 << 40).ChancePermille(400) {
		p.Bounds.TenantSharePct = uint32(at(1<<40|1).Between(25, 80))
		if at(1<<40 | 2).ChancePermille(400) {
			p.Bounds.TenantShareLater = uint32(at(1<<40|3).Between(15, 99))
		}
	}
	for i := range p.NodeCount() {
		d := at(1<<20 | uint64(i))
		tenants := []uint32{0} // At the end of a run all nodes exchange chunks of the default tenant.
		for n := uint32(1); n <= plan.TenantsMax; n++ {
			d = d.Rehash()
			needed := false
			for j := range p.Jobs {
				x := &p.Jobs[j]
				needed = needed || (int(x.From) == i || int(x.To) == i) && len(x.Keys) > 0 && t.KeyTenants[x.Keys[0]] == n
			}
			if needed && !d.ChancePermille(150) || !needed && d.ChancePermille(200) {
				tenants = append(tenants, n)
			}
		}
		t.Tenants = append(t.Tenants, tenants)
		if d.Rehash().ChancePermille(400) {
			t.Limited = append(t.Limited, plan.Node(i))
		}
	}
}

// drawKeyTenants draws a tenant for each set of keys that jobs share, so that each job has keys of one tenant.
func drawKeyTenants(p *plan.Plan, at func(uint64) draw.Value) map[uint32]uint32 {
	first := map[uint32]uint32{} // a key of the same set; a key that is not in the map stands for its set
	root := func(k uint32) uint32 {
		for {
			next, ok := first[k]
			if !ok {
				return k
			}
			k = next
		}
	}
	var keys []uint32
	for i := range p.Jobs {
		for _, k := range p.Jobs[i].Keys {
			keys = append(keys, k)
			if a, b := root(p.Jobs[i].Keys[0]), root(k); a != b {
				first[max(a, b)] = min(a, b)
			}
		}
	}
	slices.Sort(keys)
	tenants := map[uint32]uint32{}
	for _, k := range slices.Compact(keys) {
		if tenant := uint32(at(1<<32 | uint64(root(k))).Below(plan.TenantsMax + 1)); tenant > 0 {
			tenants[k] = tenant
		}
	}
	return tenants
}
