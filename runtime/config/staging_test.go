package config

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

const delayedReceiverYAML = `
enable_pd: true
pd_role: receiver
pd_peer_host: 10.0.0.2
pd_peer_init_port: 7300
pd_peer_alloc_port: 7400
pd_pull_mode: true
pd_delay_pull: true
pd_buffer_size: %d
pd_buffer_device: cpu
extra_config:
  kvferry:
    layout: {num_layers: 36, num_kv_heads: 4, head_size: 128, dtype: bfloat16}
`

// Staging is whole pages of the pool: as configured, else an eighth, and at least two where the pool has two.
func TestStagingPages(t *testing.T) {
	const page = 18_874_368
	for _, c := range []struct {
		pages, more string
		want        uint32
	}{
		{"64", "", 8},
		{"15", "", 2},
		{"1", "", 1},
		{"64", "    pull: {staging_bytes: 18874368}\n", 1},
		{"64", "    pull: {staging_bytes: 113246207}\n", 5},
		{"64", "    pull: {staging_bytes: 1152MiB}\n", 64},
	} {
		var n uint64
		if _, err := fmt.Sscan(c.pages, &n); err != nil {
			t.Fatal(err)
		}
		got := mustParse(t, fmt.Sprintf(delayedReceiverYAML, n*page)+c.more)
		if got.StagingPages != c.want {
			t.Errorf("%s pages, %q: got %d staging pages, want %d", c.pages, c.more, got.StagingPages, c.want)
		}
		if got.Machine.FetchTimeout != 30*effects.Second || got.Machine.LeadMin != 100*effects.Millisecond {
			t.Errorf("got %+v", got.Pull)
		}
	}
}

// An engine's layout lays staging out as one in the file does.
func TestStagingOfAnEnginesLayout(t *testing.T) {
	laid := mustParse(t, fmt.Sprintf(delayedReceiverYAML, 64*18_874_368))
	late := mustParse(t, without(fmt.Sprintf(delayedReceiverYAML, 64*18_874_368), "extra_config"))
	if late.StagingPages != 0 {
		t.Errorf("%d staging pages before the layout is known", late.StagingPages)
	}
	if err := late.SetLayout(laid.Layout); err != nil || late.StagingPages != 8 {
		t.Errorf("%d staging pages, %v", late.StagingPages, err)
	}
	late.Pull.StagingBytes = 1
	if err := late.SetLayout(laid.Layout); err == nil || late.StagingPages != 8 {
		t.Errorf("a refused layout left %d staging pages, %v", late.StagingPages, err)
	}
}

func TestLoanMax(t *testing.T) {
	if got := mustParse(t, pullSenderYAML+"    pull: {loan_max: 10m}\n").Machine.ReadLeaseMax; got != 600*effects.Second {
		t.Errorf("an offer lives for at most %v, want what was configured", got)
	}
}
