package runtime_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// What is left of a transfer when the last layer is computed, between processes: layer by layer and as a whole, in
// turn, by one sender to one receiver for each. 8 chunks and a half one of 32 layers, 17 MiB, of which each layer takes
// as long as it says. From the end of the last layer's computing to the end of FinishPrefill, when the receiver has
// said that all is there; every byte is looked at then.
func BenchmarkExposedTransfer(b *testing.B) {
	for _, channel := range []string{"shm", "tcp"} {
		for _, layerTime := range []time.Duration{time.Millisecond, 250 * time.Microsecond} {
			b.Run(fmt.Sprintf("%s/%v", channel, layerTime), func(b *testing.B) { benchExposed(b, channel, layerTime) })
		}
	}
}

func benchExposed(b *testing.B, channel string, layerTime time.Duration) {
	starts := func(role, more string, bundles int) (*process, runtime.Peer) {
		return startNode(b, order{Layers: &layersOrder{Alone: true,
			Text: fmt.Sprintf(benchLayersText, role, channel, more, bundles)}})
	}
	const tokens = 8*chunkTokens + chunkTokens/2
	from, _ := starts("sender", "pd_skip_proxy_notification: true\n", 1024)
	ways := [2]struct {
		name    string
		bundles int
		to      *process
		at      runtime.Peer
		exposed []time.Duration
	}{{name: "layers", bundles: 1024}, {name: "whole"}}
	for i := range ways {
		at := reservedPeer(b)
		w := &ways[i]
		w.to, w.at = starts("receiver", fmt.Sprintf("pd_peer_host: %s\npd_peer_init_port: %d\npd_peer_alloc_port: %d\n",
			at.Host, at.InitPort, at.AllocPort), w.bundles)
	}
	b.ResetTimer()
	for n := range b.N {
		for i := range ways {
			w, request := &ways[i], fmt.Sprint(ways[i].name, n)
			keys := keysOf(fmt.Sprint("exposed", n), 9)
			did := from.perform(order{Op: "prefill", Peer: w.at, Keys: keys,
				Layers: &layersOrder{Request: request, Steps: []int{tokens}, LayerTime: layerTime}})
			if did.Code != effects.OK || did.Hits != len(keys) {
				b.Fatalf("%s: %d chunks have gone: %v", w.name, did.Hits, did.Code)
			}
			if n > 0 { // The first one shakes hands.
				w.exposed = append(w.exposed, did.Exposed)
			}
			w.to.perform(order{Op: "take", Keys: keys, Layers: &layersOrder{Request: request, Tokens: tokens}})
		}
	}
	b.StopTimer()
	for _, p := range []*process{from, ways[0].to, ways[1].to} {
		p.closeNode()
	}
	if b.ReportMetric(0, "ns/op"); len(ways[0].exposed) == 0 {
		return
	}
	for name, q := range map[string]float64{"p50": 0.5, "p99": 0.99} {
		for i := range ways {
			b.ReportMetric(quantile(ways[i].exposed, q)/1e6, name+"-"+ways[i].name+"-ms")
		}
		b.ReportMetric(quantile(ways[0].exposed, q)/quantile(ways[1].exposed, q), name+"-ratio")
	}
}
