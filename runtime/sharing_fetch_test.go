package runtime_test

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// keeperConfig is that of a sharer with delayed pull, whose fetches have two pages.
func keeperConfig(t *testing.T, channel string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test", fmt.Appendf(nil, sharerText, channel, 8*pageBytes,
		fmt.Sprintf("p2p_delay_pull: true\np2p_npu_buffer_size: %d\n", 2*pageBytes)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.InitPorts[0], cfg.Share.LookupPorts[0] = 0, 0; cfg.StagingPages != 2 {
		t.Fatalf("%d staging pages, want 2", cfg.StagingPages)
	}
	return cfg
}

// What a peer has is kept where it is until it is fetched, over either plane, byte by byte: through two pages, and then
// it is given back. What nobody has ends the prefix; what is abandoned is given back as well.
func TestSharingFetch(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			owner, reader := open(t, sharerConfig(t, channel, "a", config.MonitorPorts{})), open(t, keeperConfig(t, channel))
			keys := keysOf("kept", 4)
			mustStore(t, owner, keys[:3])
			get := runtime.SharedGet{Request: "r", Keys: keys,
				From: runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(owner).InitPort}}
			kept, err := reader.Sharing().Lease(within(t), get)
			if wantCode(t, err, effects.NotFound); kept != 3 {
				t.Errorf("%d chunks are kept, want 3", kept)
			}
			if s := reader.Stats(); s.Locations != 3 || s.PagesFree != s.PagesTotal {
				t.Errorf("%d chunks are kept, and %d of %d pages free", s.Locations, s.PagesFree, s.PagesTotal)
			}
			d := &device{tb: t, keys: keys}
			taken, err := reader.Sharing().Fetch(within(t), runtime.SharedFetch{SharedGet: get, Scatter: d.scatter})
			if wantCode(t, err, effects.NotFound); taken != 3 {
				t.Errorf("%d chunks were taken, want 3", taken)
			}
			if len(d.lengths) != 3 {
				t.Errorf("the engine took %d chunks, want 3", len(d.lengths))
			}
			given := func(s rank.Stats) bool { return s.PagesLeased == 0 }
			waitFor(t, owner, "the end of the loan", given)

			get.Request, get.Keys = "s", keys[:2]
			if kept, err := reader.Sharing().Lease(within(t), get); kept != 2 || err != nil {
				t.Errorf("%d chunks are kept, want 2: %v", kept, err)
			}
			if err := reader.Receiver().Abandon("s"); err != nil {
				t.Error(err)
			}
			waitFor(t, owner, "the end of the loan", given)
			_, err = owner.Sharing().Lease(within(t), get)
			wantCode(t, err, effects.Unsupported)
			for _, n := range []*runtime.Node{reader, owner} {
				wantNothingHeld(t, n)
				mustClose(t, n)
			}
		})
	}
}
