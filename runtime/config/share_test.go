package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/protocol"
)

// LMCache-Ascend's two examples of sharing load as they are, but for their address, and mean what they mean there.
func TestSharingExamplesLoad(t *testing.T) {
	for file, want := range map[string]struct {
		init, lookup []uint16
		feed, reply  uint16
		npu          uint64 // bytes of the second pool
	}{
		"example1.yaml": {[]uint16{9960, 9961}, []uint16{9962, 9963}, 9800, 9900, 128 << 20},
		"example2.yaml": {[]uint16{9964, 9965}, []uint16{9966, 9967}, 8600, 8700, 0},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", "p2p", file))
		if err != nil {
			t.Fatal(err)
		}
		c, err := Parse(file, []byte(strings.ReplaceAll(string(text), "<hostIP>", "10.0.0.9")), nil)
		if err != nil {
			t.Fatal(err)
		}
		s, m := &c.Share, &c.Machine
		if !s.Enabled || !s.Only || c.Role != Both || c.PeerHost != "10.0.0.9" || c.BufferBytes != 5<<30 ||
			m.Retention != store.Cache ||
			!slices.Equal(c.InitPorts, want.init) || !slices.Equal(s.LookupPorts, want.lookup) || c.RankCount() != 2 ||
			!slices.Equal(s.Feeds, []protocol.Endpoint{{Host: "10.0.0.9", Port: want.feed}}) ||
			!slices.Equal(s.Replies, []protocol.Endpoint{{Host: "10.0.0.9", Port: want.reply}}) ||
			m.ShareTTL != 60*effects.Second || m.LookupTimeout != 3*effects.Second || m.BringTimeout != 11*effects.Second ||
			m.Directory.LookupTimeout != 500*effects.Millisecond {
			t.Errorf("%s: %+v", file, c)
		}
		if s.NPU != (want.npu > 0) || s.NPUBytes != want.npu {
			t.Errorf("%s: a second pool of %d bytes: %t; want %d", file, s.NPUBytes, s.NPU, want.npu)
		}
		for _, p := range c.Notes {
			if p.Field == "p2p_use_npu" || p.Field == "p2p_npu_buffer_size" {
				t.Errorf("%s: noted: %v", file, p)
			}
		}
	}
}

// A file that shares is said to do so by its own mode, and not by that of a transfer that it has not.
func TestModeOfSharing(t *testing.T) {
	const shares = "enable_p2p: true\np2p_host: 127.0.0.1\np2p_init_ports: 1\np2p_lookup_ports: 2\npd_buffer_size: 1MiB\n" +
		"pd_buffer_device: cpu\n"
	for more, want := range map[string]string{
		"":                      "sharing by push",
		"p2p_pull_mode: true\n": "sharing by pull",
		"p2p_pull_mode: true\np2p_delay_pull: true\n": "sharing by delayed pull",
		"p2p_pull_mode: true\nenable_pd: true\npd_role: both\npd_skip_proxy_notification: true\npd_peer_host: 127.0.0.1\n" +
			"pd_peer_init_port: 1\npd_peer_alloc_port: 3\n": "push, sharing by pull",
	} {
		cfg, err := Parse("test", []byte(shares+more), nil)
		if err != nil {
			t.Errorf("%q: %v", more, err)
		} else if got := cfg.TransferMode(); got != want {
			t.Errorf("%q: the mode is %q, want %q", more, got, want)
		}
	}
}

// A key below extra_config that nobody reads is named; LMCache's own and those of plug-ins are not.
func TestStrayKeysBelowExtraConfig(t *testing.T) {
	cfg, err := Parse("test", []byte(receiverYAML+
		"  save_only_first_rnk: 1\n  save_chunk_meta: 1\n  storage_plugin.mine.x: 1\n  something: 1\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, n := range cfg.Notes {
		if strings.HasPrefix(n.Field, "extra_config.") {
			told = append(told, n.Field+": "+n.Remedy)
		}
	}
	want := []string{
		"extra_config.save_only_first_rnk: no effect: neither kvferry nor LMCache " + LMCacheRelease + " reads this key; did you mean " +
			"extra_config.save_only_first_rank?",
		"extra_config.something: no effect: neither kvferry nor LMCache " + LMCacheRelease + " reads this key",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
