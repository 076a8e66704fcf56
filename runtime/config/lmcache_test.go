package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/protocol"
)

// exampleConfig reads one of the files of LMCache's and LMCache-Ascend's 1p1d examples, kept in testdata/1p1d with
// their keys and values as they are.
func exampleConfig(t *testing.T, file string, env ...string) (*Config, error) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "1p1d", file))
	if err != nil {
		t.Fatal(err)
	}
	return Parse(file, data, environ(env...))
}

// The examples' nodes load as they are, say what they get instead of what this build has not, and go
// together.
func TestLMCacheExamplesLoad(t *testing.T) {
	for _, c := range []struct {
		folder      string
		env         []string // for the decoder
		senderMiB   uint64
		receiverMiB uint64
		initPorts   []uint16
		senderNoted string
		channel     Channel
		device      Device
	}{
		{"lmcache", nil, 1024, 2048, []uint16{7300}, "pd_buffer_device", ChannelNIXL, Device{}},
		{"legacy", nil, 1024, 2048, []uint16{7301, 7302}, "nixl_buffer_device", ChannelAuto, Device{}},
		{"lmcache-ascend", []string{"LMCACHE_PD_PEER_HOST", "localhost"}, 2304, 128, []uint16{7300, 7301}, "transfer_channel",
			ChannelHCCL, Device{DeviceNPU, -1}},
	} {
		t.Run(c.folder, func(t *testing.T) {
			sender, err := exampleConfig(t, c.folder+"/lmcache-prefiller-config.yaml")
			if err != nil {
				t.Fatal(err)
			}
			receiver, err := exampleConfig(t, c.folder+"/lmcache-decoder-config.yaml", c.env...)
			if err != nil {
				t.Fatal(err)
			}
			if sender.Role != Sender || sender.BufferBytes != c.senderMiB<<20 ||
				sender.Proxy != (protocol.Endpoint{Host: "localhost", Port: 7500}) {
				t.Errorf("sender: got %+v", sender)
			}
			if receiver.Role != Receiver || receiver.BufferBytes != c.receiverMiB<<20 ||
				!slices.Equal(receiver.InitPorts, c.initPorts) || receiver.PeerHost != "localhost" {
				t.Errorf("receiver: got %+v", receiver)
			}
			for _, n := range []*Config{sender, receiver} {
				if n.Channel != c.channel || n.Device != c.device || n.Pull.Enabled {
					t.Errorf("%v: got channel %v, device %v, %v", n.Role, n.Channel, n.Device, n.Pull)
				}
			}
			if got := fields(sender.Notes); got != c.senderNoted {
				t.Errorf("sender: got notes on %q, want %q", got, c.senderNoted)
			}
			if problems := Compare(sender, receiver); len(problems) > 0 {
				t.Errorf("they do not go together: %v", problems)
			}
		})
	}
}

// One of them has a place to fill in, and says so.
func TestExamplePlaceholderIsFound(t *testing.T) {
	_, err := exampleConfig(t, "lmcache-ascend/lmcache-decoder-config.yaml")
	if err == nil ||
		!strings.HasPrefix(err.Error(),
			`lmcache-ascend/lmcache-decoder-config.yaml:6:15: pd_peer_host: "<hostIp>": a host name has`) {
		t.Errorf("got %v", err)
	}
}

func fields(problems []Problem) string {
	var all []string
	for _, p := range problems {
		all = append(all, p.Field)
	}
	return strings.Join(all, " ")
}

// No key of the release is refused as unknown, and none is said to be of it that is not.
func TestEveryKeyOfTheRelease(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "lmcache-"+LMCacheRelease+"-keys.txt"))
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if name := strings.TrimSpace(line); name != "" && !strings.HasPrefix(name, "#") {
			declared[name] = true
			if name != "extra_config" && findKey(nodeSchema.top, name) == nil && !slices.Contains(nodeSchema.ignored, name) {
				t.Errorf("%s of LMCache %s is in no table", name, LMCacheRelease)
			}
		}
	}
	if len(declared) < 100 {
		t.Fatalf("only %d keys", len(declared))
	}
	for _, name := range ignoredKeys {
		if !declared[name] {
			t.Errorf("%s is no key of LMCache %s", name, LMCacheRelease)
		}
	}
	for _, name := range ignoredOtherKeys {
		if declared[name] {
			t.Errorf("%s is a key of LMCache %s", name, LMCacheRelease)
		}
	}
}

// Every key of PD that LMCache or LMCache-Ascend declares is read, under each of its names, and can be overridden
// from the environment.
func TestEveryKeyOfPDIsRead(t *testing.T) {
	asked := map[string]bool{}
	_, err := Parse("node.yaml", []byte(receiverYAML), func(name string) (string, bool) {
		asked[name] = true
		return "",
			false
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(`
		enable_pd enable_xpyd pd_role nixl_role pd_buffer_size nixl_buffer_size pd_buffer_device
		pd_peer_host nixl_peer_host pd_peer_init_port nixl_peer_init_port pd_peer_alloc_port nixl_peer_alloc_port
		pd_peer_query_port pd_proxy_host nixl_proxy_host pd_proxy_port nixl_proxy_port
		pd_skip_proxy_notification pd_bidirectional pd_backend_mode pd_allocation_timeout_sec
		pd_shutdown_timeout_sec pd_condition_poll_interval_sec pd_max_prefill_len pd_pull_mode
		pd_delay_pull pd_pull_done_port pd_use_cpu_offload pd_cpu_buffer_size pd_alloc_fail_backoff_ttl
		pd_pull_pending_ttl pd_pull_backpressure_reserve_pct transfer_channel retrieve_locations store_location`) {
		if findKey(nodeSchema.top, name) == nil {
			t.Errorf("%s is not read", name)
		}
		if !asked["LMCACHE_"+strings.ToUpper(name)] {
			t.Errorf("%s has no variable", name)
		}
	}
}

// Every key that LMCache-Ascend adds to LMCache's (_patch_config, at its release for LMCache 0.4.5) is known.
func TestEveryKeyOfLMCacheAscendIsKnown(t *testing.T) {
	for _, name := range strings.Fields(`
		p2p_use_npu p2p_npu_buffer_size p2p_pull_mode p2p_delay_pull p2p_pull_pending_ttl p2p_sync_lookup_cache_ttl
		p2p_sync_lookup_cache_max_entries pd_pull_mode pd_delay_pull pd_pull_done_port pd_use_cpu_offload
		pd_cpu_buffer_size pd_alloc_fail_backoff_ttl pd_pull_pending_ttl pd_handoff_lease_ttl
		pd_pull_backpressure_reserve_pct store_async store_async_max_queue_size enable_chunk_hashes_return
		lookup_hashes_cache_size ascend_flatten_multi_spec ascend_bundle_multi_spec ascend_skip_state_groups`) {
		if findKey(nodeSchema.top, name) == nil && !slices.Contains(nodeSchema.ignored, name) {
			t.Errorf("%s is in no table", name)
		}
	}
}
