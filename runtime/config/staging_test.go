package config

import (
	"fmt"
	"testing"
	"time"
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
		if got.Pull.FetchTimeout != 30*time.Second || got.Pull.LeadMin != 100*time.Millisecond || got.Pull.LoanMax != 0 {
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

func TestLoansLiveTenTimesAsLong(t *testing.T) {
	if got := mustParse(t, pullSenderYAML).Pull.LoanMax; got != time.Hour {
		t.Errorf("an offer lives for at most %v, want ten times 360 s", got)
	}
	if got := mustParse(t, pullSenderYAML+"    pull: {loan_max: 10m}\n").Pull.LoanMax; got != 10*time.Minute {
		t.Errorf("an offer lives for at most %v, want what was configured", got)
	}
}
