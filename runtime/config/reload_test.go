package config

import (
	"fmt"
	"strings"
	"testing"
)

// The share of a tenant may change while a node runs, but the limit begins and ends with a restart.
func TestShareOfTenantsReloads(t *testing.T) {
	text := strings.TrimSpace(`
enable_pd: true
pd_role: receiver
pd_peer_host: 127.0.0.1
pd_peer_init_port: 7300
pd_peer_alloc_port: 7400
pd_skip_proxy_notification: true
chunk_size: 16
pd_buffer_size: 1MiB
pd_buffer_device: cpu
extra_config:
  kvferry: {layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}, tenant_share_pct: %d}`)
	parse := func(pct int) *Config {
		c, err := Parse("node.yaml", []byte(fmt.Sprintf(text, pct)), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, x := range []struct {
		from, to int
		reloads  bool
	}{{30, 60, true}, {60, 99, true}, {100, 60, false}, {60, 100, false}} {
		all := parse(x.from).Changes(parse(x.to))
		if len(all) != 1 || all[0].Reloads != x.reloads {
			t.Errorf("from %d to %d: %+v", x.from, x.to, all)
		}
	}
}
