package config

import (
	"strings"
	"testing"
)

// p2p_use_npu adds a pool of whole pages in the NPU's memory beside the cache in the host's: for fetches where they are
// delayed, else for what comes. Where the pool is the NPU's already there is none beside it.
func TestSecondPool(t *testing.T) {
	const page = 16 << 10
	const shares = "enable_p2p: true\np2p_host: 127.0.0.1\np2p_init_ports: 1\np2p_lookup_ports: 2\nchunk_size: 16\n" +
		"pd_buffer_size: 1MiB\nextra_config:\n  kvferry:\n    layout: {num_layers: 2, num_kv_heads: 1, head_size: 128, " +
		"dtype: bfloat16}\n"
	for _, c := range []struct {
		more                string
		channel             Channel
		npu, bytes, staging int
		noted               string
		err                 string
	}{
		{more: "", channel: ChannelAuto},
		{more: "p2p_use_npu: true\n", channel: ChannelHCCL, npu: 1 << 16, bytes: 1 << 30},
		{more: "p2p_use_npu: true\np2p_npu_buffer_size: 33000\n", channel: ChannelHCCL, npu: 3, bytes: 3 * page},
		{more: "p2p_use_npu: true\ntransfer_channel: hccl\np2p_npu_buffer_size: 32768\np2p_pull_mode: true\n" +
			"p2p_delay_pull: true\n", channel: ChannelHCCL, npu: 2, bytes: 2 * page, staging: 2},
		{more: "p2p_npu_buffer_size: 65536\np2p_pull_mode: true\np2p_delay_pull: true\n", staging: 4},
		{more: "p2p_npu_buffer_size: 65536\n", noted: "p2p_npu_buffer_size"},
		{more: "p2p_use_npu: true\npd_buffer_device: npu\n", channel: ChannelHCCL, noted: "p2p_use_npu"},
		{more: "p2p_use_npu: true\ntransfer_channel: tcp\n", err: "p2p_use_npu"},
		{more: "p2p_use_npu: true\np2p_npu_buffer_size: 64TiB\n", err: "p2p_npu_buffer_size"},
	} {
		got, err := Parse("node.yaml", []byte(c.more+shares), nil)
		if c.err != "" || err != nil {
			if err == nil || c.err == "" || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v; want an error about %q", c.more, err, c.err)
			}
			continue
		}
		noted := ""
		for _, p := range got.Notes {
			if strings.HasPrefix(p.Field, "p2p_") {
				noted = p.Field
			}
		}
		s := &got.Share
		if got.Channel != c.channel || int(got.NPUPages) != c.npu || int(s.NPUBytes) != c.bytes ||
			int(got.StagingPages) != c.staging || s.NPU != (c.npu > 0) || noted != c.noted || got.Device.Kind == DeviceNPU !=
			strings.Contains(c.more, "pd_buffer_device") {
			t.Errorf("%q: %v, %d pages of %d bytes, %d to fetch into, noted %q", c.more, got.Channel, got.NPUPages, s.NPUBytes,
				got.StagingPages, noted)
		}
	}
}
