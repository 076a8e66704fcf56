//go:build cgo && linux

package runtime_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/libnixl/libnixltest"
	"github.com/kvferry/kvferry/runtime/libnixl/nixlproc"
	"github.com/kvferry/kvferry/runtime/npu"
	"github.com/kvferry/kvferry/runtime/plane/nixl"
)

// leasedRigs open nodes over each leased plane, with the pool in host memory.
var leasedRigs = []struct {
	name  string
	start func(t *testing.T) func(id byte, cfg *config.Config) *runtime.Node
}{
	{"hccl", func(t *testing.T) func(byte, *config.Config) *runtime.Node {
		rig := hccltest.StartRig(t)
		return func(id byte, cfg *config.Config) *runtime.Node { return openNPU(t, rig, id, cfg, npu.Options{}).Node }
	}},
	{"nixl", func(t *testing.T) func(byte, *config.Config) *runtime.Node {
		library := libnixltest.LoadLibrary(t)
		return func(_ byte, cfg *config.Config) *runtime.Node {
			cfg.NIXL.InProcess = true
			plane := nixl.Config{Agents: nixlproc.InProcess(library), Host: "127.0.0.1"}
			n, err := runtime.Open(t.Context(), cfg, runtime.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))),
				runtime.WithControl(zmq.Config{}.Opener()), runtime.WithPlane(nixl.Name, plane.Open), audit(t, false))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { mustClose(t, n) })
			return n
		}
	}},
}

// On leased planes the receiver compares the pages of a put before it answers the commit: a put of a page that changed
// on its way fails as corrupt, and none of it is readable.
func TestChecksumsOfLeasedPushes(t *testing.T) {
	for _, rig := range leasedRigs {
		t.Run(rig.name, func(t *testing.T) {
			opened := rig.start(t)
			cfg := withChecksums(receiverConfig(t, rig.name, nil))
			cfg.Data.KeepCorrupt = t.TempDir()
			r := opened(2, cfg)
			s := opened(1, withChecksums(senderConfig(t, rig.name, effects.Addr{})))
			first, second := keysOf("first", 8), keysOf("second", 2)
			pages := mustReserve(t, s, 8)
			fill(t, pages, first)
			if _, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r1", Keys: first, Pages: pages, Last: true}); err != nil {
				t.Fatal(err)
			}
			wantCompared(t, r, 0)

			t.Log("# the receiver is full, so the next put waits; meanwhile a bit of its second page changes")
			fill(t, pages, second)
			ended := make(chan error, 1)
			go func() {
				_, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r2", Keys: second, Pages: pages, Last: true})
				ended <- err
			}()
			waitFor(t, r, "the waiting put", func(s rank.Stats) bool { return s.PendingRequests > 0 })
			flipBit(t, pages, 1)
			got, err := r.Receiver().Get(within(t), runtime.Get{Request: "r1", Keys: first})
			if err != nil {
				t.Fatal(err)
			}
			wantContent(t, got, first, pageBytes)
			mustRelease(t, got)
			if err := <-ended; runtime.CodeOf(err) != effects.Corrupt {
				t.Errorf("the put of a changed page ends as %v", err)
			}
			wantCompared(t, r, 1)
			if hits, err := r.Receiver().Contains(within(t), second); err != nil || hits != 1 {
				t.Errorf("%d chunks before the changed one are there: %v", hits, err)
			}
			wantKept(t, cfg, 1)
			mustRelease(t, pages)
		})
	}
}

// A read over a leased plane is compared when it has ended.
func TestChecksumsOfLeasedOffers(t *testing.T) {
	for _, rig := range leasedRigs {
		t.Run(rig.name, func(t *testing.T) {
			opened := rig.start(t)
			r := opened(2, withChecksums(delayedConfig(t, rig.name, 4)))
			s := opened(1, withChecksums(pullSenderConfig(t, rig.name, effects.Addr{})))
			keys := keysOf("offer", 3)
			pages := mustReserve(t, s, 3)
			fill(t, pages, keys)
			res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r1", Keys: keys, Pages: pages, Last: true})
			if err != nil {
				t.Fatal(err)
			}
			mustFetch(t, r, "r1", keys[:1])
			wantCompared(t, r, 0)
			flipBit(t, pages, 1)
			_, err = r.Receiver().Fetch(within(t), runtime.Fetch{Request: "r1", Keys: keys[1:], Scatter: failingScatter(t), Timeout: limit})
			if runtime.CodeOf(err) != effects.Corrupt {
				t.Errorf("the fetch of a changed page ends as %v", err)
			}
			wantCompared(t, r, 1)
			wantReturned(t, res)
			mustRelease(t, pages)
		})
	}
}
