package runtime

import (
	"slices"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control"
)

func parseNode(t *testing.T, more string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test", []byte(`enable_pd: true
transfer_channel: tcp
chunk_size: 16
pd_buffer_size: 1048576
pd_buffer_device: cpu
pd_skip_proxy_notification: true
pd_peer_host: 127.0.0.1
pd_peer_init_port: 7300
pd_peer_alloc_port: 7400
`+more), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

const ownKeys = "extra_config: {kvferry: {layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, dtype: bfloat16}, "

// What is configured reaches the machine: here how long a sender leaves a receiver alone that had no memory.
func TestBreakerIsConfigured(t *testing.T) {
	cfg := parseNode(t, "pd_role: sender\npd_alloc_fail_backoff_ttl: 0.25\n"+ownKeys+"}}")
	if got := machineConfig(cfg, 0, "here").BreakerTTL; got != 250*effects.Millisecond {
		t.Errorf("a receiver without memory is left alone for %d ns, want 250 ms", got)
	}
}

func TestLeaseGuardIsConfigured(t *testing.T) {
	for more, want := range map[string]effects.Duration{
		"}}":                              effects.Second,
		"lease: 2}}":                      500 * effects.Millisecond,
		"lease: 2, lease_guard: 1999ms}}": 1999 * effects.Millisecond,
		"lease: 100, lease_guard: 1m}}":   60 * effects.Second,
	} {
		cfg := parseNode(t, "pd_role: sender\n"+ownKeys+more)
		if got := machineConfig(cfg, 0, "here").LeaseGuard; got != want {
			t.Errorf("%s: the guard is %d ns, want %d", more, got, want)
		}
	}
}

// The wait for an answer and the wait for pages meet in two nodes, so neither may keep one node from opening.
func TestEachRoleKeepsItsOwnTimeout(t *testing.T) {
	for _, role := range []string{"sender", "receiver"} {
		cfg := parseNode(t, "pd_role: "+role+"\npd_alloc_fail_backoff_ttl: 30\n"+ownKeys+"link: {request_timeout: 3}}}")
		c := machineConfig(cfg, 0, "here")
		c.Planes = []rank.Plane{{Name: "tcp"}}
		if _, err := rank.New(c, 1, 0); err != nil {
			t.Errorf("%s: %v", role, err)
		}
		if role == "sender" && (c.ReplyTimeout != 3*effects.Second || c.BreakerTTL != 30*effects.Second) {
			t.Errorf("a sender waits %d ns for an answer and leaves a receiver alone for %d", c.ReplyTimeout, c.BreakerTTL)
		}
		if role == "receiver" && c.AllocTimeout != 30*effects.Second {
			t.Errorf("a receiver's allocations wait %d ns", c.AllocTimeout)
		}
	}
}

func TestPullIsConfigured(t *testing.T) {
	const pull = "pd_role: sender\npd_pull_mode: true\npd_pull_pending_ttl: 90\n" // The port is the allocations' + 100.
	for more, reserve := range map[string]uint32{
		"": 20_000, "pd_pull_backpressure_reserve_pct: 2.5\n": 25_000,
		"pd_pull_backpressure_reserve_pct: 0\n": rank.ReserveNone,
	} {
		cfg := parseNode(t, pull+more+ownKeys+"}}")
		c := machineConfig(cfg, 0, "here")
		done := effects.Addr{Host: "127.0.0.1", Port: 7500}
		if !c.Pull || c.DoneAddr != done || c.PullTTL != 90*effects.Second || c.ReservePPM != reserve {
			t.Errorf("%q: got pull %t, done at %v, %d ns, %d ppm", more, c.Pull, c.DoneAddr, c.PullTTL, c.ReservePPM)
		}
		c.Planes = []rank.Plane{{Name: "tcp"}}
		if _, err := rank.New(c, 1, 0); err != nil {
			t.Errorf("%q: %v", more, err)
		}
		servers, err := controlServers(cfg, 0)
		want := []control.Server{{Channel: effects.ChannelInit, Addr: effects.Addr{Host: "127.0.0.1", Port: 7300}},
			{Channel: effects.ChannelDone, Addr: done}}
		if err != nil || !slices.Equal(servers, want) {
			t.Errorf("%q: it serves %v, %v", more, servers, err)
		}
		if _, err := controlServers(cfg, 1); err == nil {
			t.Error("a rank without a port serves")
		}
	}
	pushing := parseNode(t, "pd_role: sender\npd_pull_done_port: 7500\n"+ownKeys+"}}")
	if c := machineConfig(pushing, 0, "here"); c.Pull || c.DoneAddr != (effects.Addr{}) {
		t.Errorf("a sender that pushes: pull %t, done at %v", c.Pull, c.DoneAddr)
	}
	if servers, err := controlServers(pushing, 0); len(servers) != 0 || err != nil {
		t.Errorf("a sender that pushes serves %v, %v", servers, err)
	}
}

func TestDelayedPullIsConfigured(t *testing.T) {
	const delayed = "pd_role: receiver\npd_pull_mode: true\npd_delay_pull: true\n"
	for more, staging := range map[string]uint32{"}}": 8,
		"pull: {staging_bytes: 49152, fetch_timeout: 3, lead_min: 20ms}}}": 3} {
		c := machineConfig(parseNode(t, delayed+ownKeys+more), 0, "here")
		configured := more != "}}"
		if !c.Delay || c.StagingPages != staging || configured && (c.FetchTimeout != 3*effects.Second ||
			c.LeadMin != 20*effects.Millisecond) {
			t.Errorf("%q: got delay %t, %d staging pages, %d ns to fetch, %d ns to lead", more, c.Delay, c.StagingPages,
				c.FetchTimeout, c.LeadMin)
		}
		c.Planes = []rank.Plane{{Name: "tcp"}}
		if _, err := rank.New(c, 1, 0); err != nil {
			t.Errorf("%q: %v", more, err)
		}
	}
	c := machineConfig(parseNode(t,
		"pd_role: receiver\n"+ownKeys+"pull: {read_timeout: 4}, clock_drift_ppm: 50, request_ttl: 5, abandon_ttl: 6}}"), 0,
		"here")
	if c.ReadTimeout != 4*effects.Second || c.DriftPPM != 50 || c.RequestTTL != 5*effects.Second ||
		c.AbandonTTL != 6*effects.Second {
		t.Errorf("got %d ns to read, %d ppm of drift, %d ns for requests, %d ns for abandoned ones", c.ReadTimeout,
			c.DriftPPM, c.RequestTTL, c.AbandonTTL)
	}
	const pulled = "pd_role: sender\npd_pull_mode: true\npd_pull_pending_ttl: 90\npd_delay_pull: true\n"
	// Without loan_max the machine derives it from the length of a lease.
	for more, most := range map[string]effects.Duration{"}}": 0,
		"pull: {loan_max: 2m}}}": 120 * effects.Second} {
		if c := machineConfig(parseNode(t, pulled+ownKeys+more), 0, "here"); c.Delay || c.ReadLeaseMax != most {
			t.Errorf("a sender, %q: got delay %t, leases of at most %d ns; want %d", more, c.Delay, c.ReadLeaseMax, most)
		}
	}
}

// So does how much of a pool peers may read at a time.
func TestLentShareIsConfigured(t *testing.T) {
	const shares = "pd_role: both\nenable_p2p: true\np2p_host: 127.0.0.1\np2p_init_ports: 7300\np2p_lookup_ports: 7600\n"
	for _, c := range []struct {
		more string
		want uint32
	}{{"}}", 75}, {"share: {lent_pct: 20}}}", 20}} {
		cfg := parseNode(t, shares+ownKeys+c.more)
		if got := machineConfig(cfg, 0, "here").LoanSharePct; got != c.want {
			t.Errorf("%s: peers may read %d %% of the pool, want %d", c.more, got, c.want)
		}
	}
}

// So does everything that is said of layerwise push; a machine that is not told of it pushes none.
func TestLayerwiseIsConfigured(t *testing.T) {
	const own = "layerwise: {merge_bytes: 1MiB, batches: 2, runs: 3, saves: 4, chunks: 5, run_ttl: 6, bundles: 7, " +
		"bundle_ttl: 8, bundle_max: 9}}}"
	c := machineConfig(parseNode(t, "pd_role: both\nuse_layerwise: true\n"+ownKeys+own), 0, "here")
	if want := (rank.Layerwise{MergeBytes: 1 << 20, BatchesMax: 2, RunsMax: 3, SavesMax: 4, ChunksMax: 5,
		RunTTL: 6 * effects.Second}); c.Layerwise != want {
		t.Errorf("got %+v, want %+v", c.Layerwise, want)
	}
	want := rank.Bundling{Layers: 2, BundlesMax: 7, BundleTTL: 8 * effects.Second, BundleMaxTTL: 9 * effects.Second}
	if c.Bundling != want {
		t.Errorf("got %+v, want %+v", c.Bundling, want)
	}
	c = machineConfig(parseNode(t, "pd_role: receiver\nuse_layerwise: true\n"+ownKeys+"layerwise: {bundles: 0}}}"), 0,
		"here")
	if !c.WholeChunks || c.Layers != 2 {
		t.Errorf("a receiver of whole chunks: %+v", c.Bundling)
	}
	c = machineConfig(parseNode(t, "pd_role: both\n"+ownKeys+"layerwise: {runs: 3}}}"), 0, "here")
	if c.Bundling != (rank.Bundling{}) || c.Layerwise != rank.DefaultConfig().Layerwise {
		t.Errorf("without use_layerwise: %+v, %+v", c.Bundling, c.Layerwise)
	}
}

// Chunks go with a question up to half of what a message may have, and none from memory of a device.
func TestCarries(t *testing.T) {
	cfg := &config.Config{Limits: protocol.DefaultLimits()}
	for _, c := range []struct{ configured, want uint64 }{{0, 0}, {4096, 4096}, {1 << 30, uint64(cfg.Limits.MessageBytes / 2)}} {
		if cfg.Machine.Carries = uint32(c.configured); carriedBytesMax(cfg) != uint32(c.want) {
			t.Errorf("%d bytes are configured: %d are carried, want %d", c.configured, carriedBytesMax(cfg), c.want)
		}
	}
	if cfg.Device.Kind = config.DeviceNPU; carriedBytesMax(cfg) != 0 {
		t.Error("pages in a device are carried")
	}
}
