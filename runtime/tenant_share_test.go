package runtime_test

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
)

// A larger share of a tenant is in force as soon as it is read: a reserve that waits for it is served.
func TestShareOfATenantIsReloaded(t *testing.T) {
	cfg := senderConfig(t, "shm", effects.Addr{})
	cfg.Machine.TenantSharePct = 50
	n := open(t, cfg)
	defer mustClose(t, n)
	tenant := effects.TenantOfSalt("salt-of-a")
	reserve := func(count int, tenant effects.Tenant) *runtime.Pages {
		t.Helper()
		p, err := n.Sender().ReserveFor(within(t), count, tenant)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	held := []*runtime.Pages{reserve(int(cfg.Pages)/2, tenant), reserve(1, 0)}
	served := make(chan *runtime.Pages, 1)
	go func() {
		p, err := n.Sender().ReserveFor(within(t), 1, tenant)
		if err != nil {
			t.Error(err)
		}
		served <- p
	}()
	waitFor(t, n, "a reserve that waits", func(s rank.Stats) bool { return s.Reserves == 3 })
	larger := *cfg
	larger.Machine.TenantSharePct = 75
	n.Reload(&larger)
	for _, p := range append(held, <-served) {
		mustRelease(t, p)
	}
}
