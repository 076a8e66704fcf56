package runtime

import (
	"log/slog"
	"slices"

	"github.com/kvferry/kvferry/runtime/secure"
)

// poolSharingPlanes are the planes whose peers can read every page of the pool: shm maps the whole pool into the peer,
// and nixl and hccl register the whole pool with a card. The other planes serve only the pages of a grant.
//
//kvferry:table
var poolSharingPlanes = []string{"shm", "nixl", "hccl"}

func sharesPool(p namedPlane) bool { return slices.Contains(poolSharingPlanes, p.name) }

// keepTenantsApart removes, or refuses, what cannot keep the chunks of tenants apart, if the policy limits the tenants of
// peers.
func (b *nodeBuilder) keepTenantsApart(guard *secure.Guard, log *slog.Logger) error {
	if b.cfg.Security.SharedPages {
		return nil
	}
	if !guard.StatesTenants() {
		guard.OnReload(func() {
			if guard.StatesTenants() && (b.cfg.Register.Enabled || slices.ContainsFunc(b.options.planes, sharesPool)) {
				log.Error("the policy limits tenants now, and this node still serves whole pools or blocks to its peers",
					"remedy", "restart the node, or set security.shared_pages: true")
			}
		})
		return nil
	}
	if b.cfg.Register.Enabled {
		return argumentError("open", "security.policy", "tenants", "no tenants",
			"registered blocks have no keys, so their tenants are unknown; remove the tenants from the policy, or set "+
				"security.shared_pages: true")
	}
	kept := slices.DeleteFunc(slices.Clone(b.options.planes), sharesPool)
	if len(kept) == len(b.options.planes) {
		return nil
	}
	if len(kept) == 0 {
		return argumentError("open", "transfer_channel", b.options.planes[0].name, "tcp",
			"a peer of this plane can read the whole pool, and security.policy limits the tenants of peers; use tcp, or set "+
				"security.shared_pages: true")
	}
	log.Info("data planes whose peers can read the whole pool are left out, because the policy limits tenants",
		"remedy", "to use them nevertheless, set security.shared_pages: true")
	b.options.planes = kept
	return nil
}
