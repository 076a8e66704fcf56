package config

import (
	"math/big"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

const pullSenderYAML = `
enable_pd: true
pd_role: sender
pd_peer_host: "fd00::1"
pd_skip_proxy_notification: true
pd_peer_init_port: [7300, 7301]
pd_peer_alloc_port: [7400, 7401]
pd_pull_mode: true
pd_buffer_size: 1207959552
pd_buffer_device: cpu
extra_config:
  kvferry:
    layout: {num_layers: 36, num_kv_heads: 4, head_size: 128, dtype: bfloat16}
`

func TestPullSender(t *testing.T) {
	c := mustParse(t, pullSenderYAML)
	want := Pull{Enabled: true, DonePorts: []uint16{7500, 7501}, doneFromAlloc: true}
	if m := &c.Machine; m.PullTTL != 360*effects.Second || m.ReadTimeout != 10*effects.Second || m.ReservePPM != 20_000 ||
		m.FetchTimeout != 30*effects.Second || m.LeadMin != 100*effects.Millisecond {
		t.Errorf("got %+v", m)
	}
	if !reflect.DeepEqual(c.Pull, want) || c.Pull.String() != "pull" {
		t.Errorf("got %+v, want %+v", c.Pull, want)
	}
	// LMCache-Ascend's own numbers: 64 pages, 2 %.
	if c.Pages != 64 || c.HighWater() != 62 {
		t.Errorf("got %d pages to offer of %d, want 62 of 64", c.HighWater(), c.Pages)
	}
	done, served := c.DoneEndpoint(1)
	if !served || done != (protocol.Endpoint{Host: "fd00::1", Port: 7501}) || done.String() != "[fd00::1]:7501" {
		t.Errorf("rank 1 is told at %v (%s), %t", done, done, served)
	}
	hello, served := c.InitEndpoint(1)
	if !served || hello.String() != "[fd00::1]:7301" {
		t.Errorf("rank 1 is renewed at %s, %t", hello, served)
	}
	if e, served := c.DoneEndpoint(2); served {
		t.Errorf("rank 2 is told at %v", e)
	}
}

func TestPullByEnvironment(t *testing.T) {
	c, err := Parse("node.yaml", []byte(senderYAML), environ(
		"LMCACHE_PD_PULL_MODE", "True", "LMCACHE_PD_DELAY_PULL", "False",
		"LMCACHE_PD_PULL_DONE_PORT", "7600, 7601", "LMCACHE_PD_PEER_INIT_PORT", "7300,7301",
		"LMCACHE_PD_USE_CPU_OFFLOAD", "true", "LMCACHE_PD_CPU_BUFFER_SIZE", "21474836480",
		"LMCACHE_PD_BUFFER_DEVICE", "npu:0", "LMCACHE_PD_PULL_PENDING_TTL", "60.5",
		"LMCACHE_PD_PULL_BACKPRESSURE_RESERVE_PCT", "12.5"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Pull.String() != "pull" || !slices.Equal(c.Pull.DonePorts, []uint16{7600, 7601}) ||
		c.Machine.PullTTL != 60500*effects.Millisecond || c.Machine.ReservePPM != 125_000 {
		t.Errorf("got %+v", c.Pull)
	}
	if !c.Offload || c.BufferBytes != 20<<30 || c.Device != (Device{DeviceNPU, 0}) || c.PoolDevice() != (Device{}) {
		t.Errorf("got offload %t, %d bytes on %v, device %v", c.Offload, c.BufferBytes, c.PoolDevice(), c.Device)
	}
}

// pd_cpu_buffer_size is the size of a pool in host memory, be it so by pd_use_cpu_offload or by pd_buffer_device, and of
// no other.
func TestCPUBufferSize(t *testing.T) {
	const page = 18_874_368
	npu, cpu := Device{DeviceNPU, -1}, Device{}
	for _, c := range []struct {
		more  string
		pages uint32
		key   string
		pool  Device
	}{
		{"", 64, bufferKey, cpu},
		{"pd_cpu_buffer_size: 0\n", 64, bufferKey, cpu},
		{"pd_cpu_buffer_size: 18874369\n", 2, cpuBufferKey, cpu},
		{"pd_cpu_buffer_size: 18874369\npd_buffer_device: npu\n", 64, bufferKey, npu},
		{"pd_use_cpu_offload: true\n", 64, bufferKey, cpu},
		{"pd_use_cpu_offload: true\npd_buffer_device: npu\n", 64, bufferKey, cpu},
		{"pd_use_cpu_offload: true\npd_cpu_buffer_size: 0\n", 64, bufferKey, cpu},
		{"pd_use_cpu_offload: true\npd_cpu_buffer_size: 94371841\n", 6, cpuBufferKey, cpu},
		{"pd_use_cpu_offload: true\npd_cpu_buffer_size: 94371840\npd_buffer_device: npu\n", 5, cpuBufferKey, cpu},
		{"pd_pull_mode: false\npd_use_cpu_offload: false\npd_buffer_device: npu\npd_cpu_buffer_size: 1\n", 64, bufferKey,
			npu},
	} {
		got := mustParse(t, replaced(pullSenderYAML, c.more))
		if got.Pages != c.pages || got.BufferBytes != uint64(c.pages)*page || got.PoolKey() != c.key {
			t.Errorf("%q: got %d pages by %s, want %d by %s", c.more, got.Pages, got.PoolKey(), c.pages, c.key)
		}
		if got.PoolDevice() != c.pool {
			t.Errorf("%q: the pool is on %v, want %v", c.more, got.PoolDevice(), c.pool)
		}
		if got.HighWater() != c.pages*98/100 {
			t.Errorf("%q: got %d pages to offer of %d", c.more, got.HighWater(), c.pages)
		}
	}
}

// The high-water mark is floor(pages × (1 − pct/100)) in exact arithmetic, for whatever can be written.
func TestHighWaterIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ppm := rapid.Uint32Max(999_999).Draw(t, "ppm")
		c := Config{Pages: rapid.Uint32Max(pagesMax).Draw(t, "pages")}
		c.Machine.ReservePPM = ppm
		rest := new(big.Rat).Sub(big.NewRat(1, 1), big.NewRat(int64(ppm), 1e6))
		exact := new(big.Rat).Mul(rest, new(big.Rat).SetInt64(int64(c.Pages)))
		if want := new(big.Int).Quo(exact.Num(), exact.Denom()).Uint64(); uint64(c.HighWater()) != want {
			t.Fatalf("%d pages less %d ppm: got %d, want %d", c.Pages, ppm, c.HighWater(), want)
		}
	})
}

func TestPercentagesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ppm := rapid.Uint32Max(1e6).Draw(t, "ppm")
		if got, err := parsePercent(formatPercent(ppm)); err != nil || got != ppm {
			t.Fatalf("%d ppm became %q became %d, %v", ppm, formatPercent(ppm), got, err)
		}
	})
	for text, want := range map[string]uint32{"2": 20_000, "2.0": 20_000, "2.": 20_000, "97.8%": 978_000, "0.00010": 1,
		"100": 1e6, "007": 70_000} {
		if got, err := parsePercent(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", ".", ".5", "-1", "100.0001", "101", "1e1", "2.00001", "0x2", "1/3", "nan", ".inf",
		"2 %", "1_0", "1.2.3"} {
		if got, err := parsePercent(text); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}
