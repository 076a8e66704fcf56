package runtime

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/config"
)

// What is configured reaches the machine: here how long a sender leaves a receiver alone that had no memory.
func TestBreakerIsConfigured(t *testing.T) {
	cfg, err := config.Parse("test", []byte(`enable_pd: true
pd_role: sender
transfer_channel: tcp
chunk_size: 16
pd_buffer_size: 1048576
pd_buffer_device: cpu
pd_skip_proxy_notification: true
pd_alloc_fail_backoff_ttl: 0.25
extra_config:
  kvferry:
    layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := machineConfig(cfg, 0, "here").BreakerTTL; got != 250*effects.Millisecond {
		t.Errorf("a receiver without memory is left alone for %d ns, want 250 ms", got)
	}
}
