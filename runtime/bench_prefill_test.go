package runtime_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

const benchLayers = 32 // of pages of 64 KiB

const benchLayersText = `enable_pd: true
use_layerwise: true
pd_role: %s
transfer_channel: %s
chunk_size: 16
pd_buffer_size: 64MiB
pd_buffer_device: cpu
%sextra_config:
  kvferry:
    layout: {num_layers: 32, num_kv_heads: 8, head_size: 128, dtype: bfloat16}
    peer_share_pct: 100
    layerwise: {bundles: %d}
`

func openBenchLayers(b *testing.B, role, channel string, bundles int) *runtime.Node {
	b.Helper()
	more := "pd_skip_proxy_notification: true\n"
	if role == "receiver" {
		more = "pd_peer_host: 127.0.0.1\npd_peer_init_port: 1\npd_peer_alloc_port: 2\n"
	}
	cfg, err := config.Parse("test", fmt.Appendf(nil, benchLayersText, role, channel, more, bundles), nil)
	if err != nil {
		b.Fatal(err)
	}
	if role == "receiver" {
		cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
	}
	return open(b, cfg)
}

// spin computes.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

func quantile(all []time.Duration, q float64) float64 {
	slices.Sort(all)
	return float64(all[min(len(all)-1, int(q*float64(len(all))))])
}

// taken gets what has come, so that its pages are free again.
func taken(b *testing.B, r *runtime.Node, request string, keys []string) {
	b.Helper()
	got, err := r.Receiver().Get(within(b), runtime.Get{Request: request, Keys: keys, Layered: true, Timeout: limit})
	if err != nil {
		b.Fatal(err)
	}
	mustRelease(b, got)
}

// What SaveLayer takes of an engine's step, beside a call of it that has nothing to say, of the same request in the
// same run: a chunk of each of 32 layers, and 25 µs of computing before each call.
func BenchmarkSaveLayer(b *testing.B) {
	for _, channel := range []string{"shm", "tcp"} {
		b.Run(channel, func(b *testing.B) {
			r, s := openBenchLayers(b, "receiver", channel, 1024), openBenchLayers(b, "sender", channel, 1024)
			defer mustClose(b, r)
			defer mustClose(b, s)
			var saves, empty []time.Duration
			b.ResetTimer()
			for n := 0; n < b.N; n += benchLayers {
				request := fmt.Sprint(n)
				keys := []string{fmt.Sprintf("bench@1@0@1%x@bfloat16", n), fmt.Sprintf("bench@1@0@2%x@bfloat16", n)}
				p := begin(b, s, peerOf(r), request, keys[:1], 0).reserve()
				for layer := range benchLayers {
					for _, c := range []struct {
						tokens int
						took   *[]time.Duration
					}{{8, &empty}, {16, &saves}} {
						spin(25 * time.Microsecond)
						begin := time.Now()
						err := s.Sender().SaveLayer(request, layer, c.tokens, p.pages)
						*c.took = append(*c.took, time.Since(begin))
						if err != nil {
							b.Fatal(err)
						}
					}
				}
				if _, err := p.finish(); err != nil {
					b.Fatal(err)
				}
				p.releases()
				taken(b, r, request, keys[:1])
			}
			b.ReportMetric(0, "ns/op") // A call among others; the quantiles say more.
			for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
				b.ReportMetric(quantile(saves, q), name+"-ns")
				b.ReportMetric(quantile(empty, q), name+"-empty-ns")
				b.ReportMetric(quantile(saves, q)/quantile(empty, q), name+"-ratio")
			}
		})
	}
}
