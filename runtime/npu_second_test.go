//go:build cgo && linux

package runtime_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/npu"
)

// secondConfig is that of a node that shares over HCCL, with a cache of eight pages in host memory and, if there are
// any, so many pages of the NPU's beside it.
func secondConfig(t *testing.T, mode string, second int) *config.Config {
	t.Helper()
	text := sharerText
	if mode == "push" {
		text = strings.Replace(text, "p2p_pull_mode: true\n", "", 1)
	}
	more := ""
	if mode == "delayed" {
		more = "p2p_delay_pull: true\n"
	}
	if second > 0 {
		more += fmt.Sprintf("p2p_use_npu: true\np2p_npu_buffer_size: %d\n", second*pageBytes)
	}
	cfg, err := config.Parse("test", fmt.Appendf(nil, text, "hccl", 8*pageBytes, more), nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.InitPorts[0], cfg.Share.LookupPorts[0] = 0, 0; int(cfg.NPUPages) != second {
		t.Fatalf("%d pages on the NPU, want %d", cfg.NPUPages, second)
	}
	return cfg
}

// gotAt gets chunks of a peer, and looks at their bytes where they are to be: in the NPU's memory, or in the host's.
func (n npuNode) gotAt(t *testing.T, from npuNode, keys []string, onDevice bool) {
	t.Helper()
	got, err := n.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys,
		From: runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(from.Node).InitPort}})
	defer mustRelease(t, got)
	if err != nil {
		t.Fatal(err)
	}
	at := located(t, got)
	if len(at) != len(keys) {
		t.Fatalf("%d of %d chunks came", len(at), len(keys))
	}
	for i := range keys {
		if _, err := got.Bytes(i); (err == nil) == onDevice || onDevice && runtime.CodeOf(err) != effects.Unsupported {
			t.Errorf("chunk %d is to be on the device: %t; in host memory it is %v", i, onDevice, err)
		}
	}
	if err := n.engine.ReadPages(at, func(i int, b []byte) {
		if len(b) != pageBytes || !isContent(b, keys[i]) {
			t.Errorf("chunk %d, of %d bytes, is not what was stored", i, len(b))
		}
	}); err != nil {
		t.Error(err)
	}
}

// fetched has a device read chunks of a peer batch by batch, and says how many pages of each pool were in use
// meanwhile.
func (n npuNode) fetched(t *testing.T, from npuNode, keys []string) (host, device int) {
	t.Helper()
	before := n.Stats()
	seen := 0
	taken, err := n.Sharing().Fetch(within(t), runtime.SharedFetch{
		SharedGet: runtime.SharedGet{Request: "f", Keys: keys,
			From: runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(from.Node).InitPort}},
		ScatterDevice: func(_ context.Context, first int, chunks []runtime.DevicePage) error {
			s := n.Stats()
			host, device = max(host, before.PagesFree-s.PagesFree), max(device, before.DeviceFree-s.DeviceFree)
			return n.engine.ReadPages(chunks, func(i int, b []byte) {
				if seen++; len(b) != pageBytes || !isContent(b, keys[first+i]) {
					t.Errorf("chunk %d, of %d bytes, is not what was stored", first+i, len(b))
				}
			})
		},
	})
	if err != nil || taken != len(keys) || seen != len(keys) {
		t.Errorf("%d of %d chunks were taken, %d looked at: %v", taken, len(keys), seen, err)
	}
	return host, device
}

// An owner and a requester have one pool or two, and share in each mode: chunks come to the pool that the configuration
// says, byte by byte, from the cache in host memory, and from a second pool to which they came before.
func TestNodesShareOfTwoPools(t *testing.T) {
	for _, mode := range []string{"push", "pull", "delayed"} {
		for _, second := range [][2]int{{0, 0}, {4, 0}, {0, 4}, {4, 4}} {
			t.Run(fmt.Sprintf("%s, %d and %d pages", mode, second[0], second[1]), func(t *testing.T) {
				rig := hccltest.StartRig(t)
				owner := openNPU(t, rig, 1, secondConfig(t, mode, second[0]), npu.Options{})
				reader := openNPU(t, rig, 2, secondConfig(t, mode, second[1]), npu.Options{})
				nodes, keys := []npuNode{owner, reader}, keysOf("cached", 3)
				stores := func(n npuNode, keys []string) {
					pages := n.filled(t, keys)
					if _, err := pages.Bytes(0); err != nil {
						t.Errorf("a reserved page is not in host memory: %v", err)
					}
					if err := n.Sharing().Store(within(t), keys, pages, 0); err != nil {
						t.Fatal(err)
					}
					mustRelease(t, pages)
				}
				stores(owner, keys)
				if mode == "delayed" {
					host, device := reader.fetched(t, owner, keys)
					if (device > 0) != (second[1] > 0) || (host > 0) == (second[1] > 0) {
						t.Errorf("%d pages of the host and %d of the NPU were fetched into", host, device)
					}
					reader.gotAt(t, owner, keys, false) // What comes to stay is the cache's.
				} else {
					reader.gotAt(t, owner, keys, second[1] > 0)
					// The first of these is in the reader's cache, the others lie where they came to.
					stores(reader, keysOf("own", 1))
					third := openNPU(t, rig, 3, secondConfig(t, mode, 4), npu.Options{})
					third.gotAt(t, reader, append(keysOf("own", 1), keys[:2]...), true)
					nodes = append(nodes, third)
				}
				for _, n := range nodes {
					waitFor(t, n.Node, "the end of all reads", func(s rank.Stats) bool {
						return isQuiet(s) && s.DeviceFree+s.DeviceEvictable == s.DeviceTotal
					})
					wantNothingHeld(t, n.Node)
				}
			})
		}
	}
}

// The second pool bounds what an engine holds of peers' chunks: more than it has find no memory, whatever is free in
// the cache, and what was released makes room.
func TestSecondPoolIsFull(t *testing.T) {
	for _, mode := range []string{"push", "pull"} {
		t.Run(mode, func(t *testing.T) {
			rig := hccltest.StartRig(t)
			owner := openNPU(t, rig, 1, secondConfig(t, mode, 0), npu.Options{})
			reader := openNPU(t, rig, 2, secondConfig(t, mode, 2), npu.Options{})
			keys := keysOf("cached", 4)
			pages := owner.filled(t, keys)
			if err := owner.Sharing().Store(within(t), keys, pages, 0); err != nil {
				t.Fatal(err)
			}
			mustRelease(t, pages)
			get := runtime.SharedGet{Request: "r", Keys: keys[:2],
				From: runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(owner.Node).InitPort}}
			held, err := reader.Sharing().Get(within(t), get)
			if err != nil || held.Len() != 2 {
				t.Fatal(held.Len(), err)
			}
			get.Request, get.Keys = "s", keys[2:]
			_, err = reader.Sharing().Get(within(t), get)
			wantCode(t, err, effects.NoMemory)
			if err == nil || !strings.Contains(err.Error(), "p2p_npu_buffer_size") {
				t.Errorf("it is not said which pool is full: %v", err)
			}
			mustRelease(t, held)
			reader.gotAt(t, owner, keys[2:], true)
			for _, n := range []npuNode{owner, reader} {
				waitFor(t, n.Node, "the end of all reads", isQuiet)
				wantNothingHeld(t, n.Node)
			}
		})
	}
}
