package link

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
)

// A peer is sent chunks of its tenants, and is asked for chunks only if it is of this node's trust domain, too.
func TestWhoIsSentAndAsked(t *testing.T) {
	const a, b = effects.Tenant(0xA), effects.Tenant(0xB)
	for _, x := range []struct {
		peer                Incarnation
		receivesA, ownsA    bool
		receivesB, receives bool // chunks of B, and of the default tenant
	}{
		{Incarnation{}, true, true, true, true},
		{Incarnation{tenants: effects.NewTenants(a)}, true, true, false, false},
		{Incarnation{tenants: effects.NewTenants(0, b)}, false, false, true, true},
		{Incarnation{realm: 7}, true, false, true, true},
		{Incarnation{realm: effects.RealmUnproven, tenants: effects.NewTenants(a)}, true, false, false, false},
	} {
		var out effects.Effects
		v := &env.Env{Out: &out}
		got := [...]bool{x.peer.CheckReceiver(v, a) == nil, x.peer.CheckOwner(v, a) == nil, x.peer.CheckReceiver(v, b) == nil,
			x.peer.CheckReceiver(v, 0) == nil}
		if want := [...]bool{x.receivesA, x.ownsA, x.receivesB, x.receives}; got != want {
			t.Errorf("tenants %v, realm %d: %v, want %v", x.peer.tenants, x.peer.realm, got, want)
		}
	}
}
