//go:build cgo && linux

package runtime_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/npu"
	"github.com/kvferry/kvferry/runtime/npu/npuengine"
)

// layersOnNPU has pages in memory of a kind, with use_layerwise.
func layersOnNPU(t *testing.T, role, memory, more string) *config.Config {
	cfg := parseNPU(t, role, 16, memory, "use_layerwise: true\n"+more)
	if role == "receiver" {
		cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
	}
	return cfg
}

// computes has a device compute layers of some tokens of a request, and saves each where it says that it is computed.
func computes(t *testing.T, s npuNode, device *npuengine.ComputeStream, request string, keys []string, pages *runtime.Pages,
	from, until, layers int) {
	t.Helper()
	at, per, saved := located(t, pages), s.Layers(), make(chan error, layers)
	for layer := range layers {
		var of []runtime.DevicePage
		var names []string
		for chunk := from / chunkTokens; chunk*chunkTokens < until; chunk++ {
			of = append(of, at[chunk*per+layer])
			names = append(names, layerOf(keys[chunk], layer))
		}
		err := device.StartFill(of, func(i int, b []byte) { contentOf(b, names[i]) }, func(err error) {
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

// A prefill computes on an NPU, and its layers go into the host memory of the decode's: each is saved where the
// device says that it is computed. A prefill that is preempted goes again.
func TestNodesPushLayersIntoHostMemory(t *testing.T) {
	for _, memory := range []string{"cpu", "npu"} {
		t.Run(memory, func(t *testing.T) {
			rig := hccltest.StartRig(t)
			s := openNPU(t, rig, 1, layersOnNPU(t, "sender", "npu", "pd_skip_proxy_notification: true\n"), npu.Options{})
			r := openNPU(t, rig, 2, layersOnNPU(t, "receiver", memory, "pd_peer_init_port: 1\npd_peer_alloc_port: 2\n"),
				npu.Options{})
			const chunks, size = 3, 16
			per := s.Layers()
			device, err := s.engine.NewComputeStream(1 << 20)
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
				compute := func(from, until, layers int) {
					t.Helper()
					computes(t, s, device, request, keys, pages, from, until, layers)
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
				got, err := r.Receiver().Get(within(t), runtime.Get{Request: request, Keys: keys, Layered: true, Timeout: limit})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := got.Bytes(0); (err == nil) != (memory == "cpu") {
					t.Errorf("a page in memory of %s is at hand: %v", memory, err)
				}
				if err := r.engine.ReadPages(located(t, got), func(i int, b []byte) {
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
			wantEmpty(t, s.Node, r.Node)
		})
	}
}

// A decode without layers has each chunk in one page of its NPU's memory, or its host's. It is put together there, of
// as many pieces as the layout has: one a layer, or the keys of all layers and then their values.
func TestNodesPutChunksTogetherOnAnNPU(t *testing.T) {
	for name, c := range map[string]struct {
		layout       string
		pieces, size int // of a layer, and bytes of it in a chunk
	}{
		"two stripes a layer": {"{num_layers: 3, num_kv_heads: 1, head_size: 128, dtype: bfloat16}", 2, 16 * 512},
		"one stripe a layer":  {"{num_layers: 4, head_size: 576, dtype: bfloat16, mla: true}", 1, 16 * 1152},
	} {
		for _, memory := range []string{"cpu", "npu"} {
			t.Run(name+" "+memory, func(t *testing.T) {
				rig := hccltest.StartRig(t)
				s := openNPU(t, rig, 1, parseNPUOf(t, c.layout, "sender", 1<<20, "npu",
					"use_layerwise: true\npd_skip_proxy_notification: true\n"), npu.Options{})
				cfg := parseNPUOf(t, c.layout, "receiver", 1<<20, memory,
					"pd_peer_init_port: 1\npd_peer_alloc_port: 2\n")
				cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
				r := openNPU(t, rig, 2, cfg, npu.Options{})
				device, err := s.engine.NewComputeStream(1 << 20)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := device.Close(); err != nil {
						t.Error(err)
					}
				}()
				const chunks, tokens = 3, 37
				keys := keysOf("together", chunks)
				begun := runtime.Prefill{Peer: peerOf(r.Node), Request: "r", Keys: keys}
				if err := s.Sender().BeginPrefill(begun); err != nil {
					t.Fatal(err)
				}
				pages := mustReserve(t, s.Node, chunks*s.Layers())
				computes(t, s, device, "r", keys, pages, 0, 20, s.Layers())
				computes(t, s, device, "r", keys, pages, 20, tokens, s.Layers())
				if res, err := s.Sender().FinishPrefill(within(t), "r"); err != nil || res.Sent != chunks {
					t.Fatalf("%+v, %v", res, err)
				}
				mustRelease(t, pages)
				got, err := r.Receiver().Get(within(t), runtime.Get{Request: "r", Keys: keys, Timeout: limit})
				if err != nil {
					t.Fatal(err)
				}
				defer mustRelease(t, got)
				if err := r.engine.ReadPages(located(t, got), func(i int, b []byte) {
					size := c.size
					if i == chunks-1 {
						size = tokens % chunkTokens * size / chunkTokens
					}
					if want := bundledChunk(keys[i], s.Layers(), c.pieces, size); !bytes.Equal(b, want) {
						t.Errorf("chunk %d, of %d bytes, is not what was computed, of %d", i, len(b), len(want))
					}
				}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
