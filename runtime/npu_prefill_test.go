//go:build cgo && linux

package runtime_test

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/npu"
)

// layersOnNPU has pages in memory of a kind, with use_layerwise.
func layersOnNPU(t *testing.T, role, memory, more string) *config.Config {
	cfg := parseNPU(t, role, 16, memory, "use_layerwise: true\n"+more)
	if role == "receiver" {
		cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
	}
	return cfg
}

// A prefill computes on an NPU, and its layers go into the host memory of the decode's: each is saved where the
// device says that it is computed. A prefill that is preempted goes again.
func TestNodesPushLayersIntoHostMemory(t *testing.T) {
	for _, memory := range []string{"cpu", "npu"} {
		t.Run(memory, func(t *testing.T) {
			rig := hccltest.Start(t)
			s := openNPU(t, rig, 1, layersOnNPU(t, "sender", "npu", "pd_skip_proxy_notification: true\n"), npu.Options{})
			r := openNPU(t, rig, 2, layersOnNPU(t, "receiver", memory, "pd_peer_init_port: 1\npd_peer_alloc_port: 2\n"),
				npu.Options{})
			const chunks, size = 3, 16
			per := s.Layers()
			device, err := s.engine.NewCompute(1 << 20)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := device.Close(); err != nil {
					t.Error(err)
				}
			}()
			for round := range 2 {
				request, keys := fmt.Sprint("r", round), keysOf(fmt.Sprint("layers", round), chunks)
				if err := s.Sender().BeginPrefill(runtime.Prefill{Peer: peerOf(r.Node), Request: request, Keys: keys}); err != nil {
					t.Fatal(err)
				}
				pages := mustReserve(t, s.Node, chunks*per)
				at := located(t, pages)
				compute := func(from, until, layers int) {
					t.Helper()
					saved := make(chan error, layers)
					for layer := range layers {
						var of []runtime.DevicePage
						var names []string
						for chunk := from / size; chunk*size < until; chunk++ {
							of = append(of, at[chunk*per+layer])
							names = append(names, layerOf(keys[chunk], layer))
						}
						err := device.Begin(of, func(i int, b []byte) { contentOf(b, names[i]) }, func(err error) {
							if err == nil {
								err = s.Sender().SaveLayer(request, layer, until, pages)
							}
							saved <- err
						})
						if err != nil {
							t.Fatal(err)
						}
					}
					for range layers {
						if err := <-saved; err != nil {
							t.Fatal(err)
						}
					}
				}
				compute(0, 20, per)
				if round == 1 {
					compute(20, 40, per-1)
					if err := s.Sender().PreemptPrefill(request); err != nil {
						t.Fatal(err)
					}
					if err := pages.AwaitReturn(within(t)); err != nil {
						t.Fatal(err)
					}
					compute(0, 20, per)
				}
				compute(20, 37, per)
				if res, err := s.Sender().FinishPrefill(within(t), request); err != nil || res.Sent != chunks {
					t.Fatalf("%+v, %v", res, err)
				}
				mustRelease(t, pages)
				got, err := r.Receiver().Get(within(t), runtime.Get{Request: request, Keys: keys, Layered: true, Patience: limit})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := got.Host(0); (err == nil) != (memory == "cpu") {
					t.Errorf("a page in memory of %s is at hand: %v", memory, err)
				}
				if err := r.engine.Look(located(t, got), func(i int, b []byte) {
					want := layerBytes
					if i/per == chunks-1 {
						want = 37 % size * layerBytes / size
					}
					if len(b) != want || !isContent(b, layerOf(keys[i/per], i%per)) {
						t.Errorf("layer %d of chunk %d, of %d bytes, is not what was computed", i%per, i/per, len(b))
					}
				}); err != nil {
					t.Error(err)
				}
				mustRelease(t, got)
			}
			nothingLeft(t, s.Node, r.Node)
		})
	}
}
