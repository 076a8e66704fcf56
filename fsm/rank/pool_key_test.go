package rank

import (
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
)

// A refusal for want of pages names the key of the configuration that makes the pool larger, which is not always
// pd_buffer_size.
func TestRefusalsNameThePoolsKey(t *testing.T) {
	const key = "max_local_cpu_size"
	r := newServing(t, func(c *Config) { c.PoolKey, c.Role, c.EngineSharePct, c.GrantsMax = key, RoleBoth, 100, 64 })
	who := r.connectPeer(1)
	for range pagesMax {
		r.wantGranted(r.requestPages(who, numberedKeys(0x100+int(r.requests), 1), nil), 1)
	}
	q := r.requestPages(who, keysOf("a"), nil)
	r.advance(allocTimeout + effects.Second)
	if _, code, _ := r.grantedPages(q); code != effects.NoMemory && code != effects.TooMany {
		t.Fatalf("a request for more than is free ends as %v", code)
	}
	if said := string(r.replies[q].Ext.Reason); !strings.Contains(said, key) {
		t.Errorf("a peer hears %q, which does not name %s", said, key)
	}
	ticket := r.command(&engine.Reserve{Count: pagesMax + 1, Timeout: effects.Second})
	if why := r.outcomes[ticket].Why; why == nil || !strings.Contains(why.Remedy, key) {
		t.Errorf("the engine hears %+v, which does not name %s", why, key)
	}
}
