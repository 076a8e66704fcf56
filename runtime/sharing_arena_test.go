package runtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// copierConfig is a node that copies what peers read to an arena of so many pages.
func copierConfig(t *testing.T, channel, instance string, at config.MonitorPorts, pages int) *config.Config {
	t.Helper()
	arena := fmt.Sprintf("extra_config:\n  use_host_staging: true\n  os_staging_bytes: %d\n"+
		"  os_staging_copy_threads: 3\n", pages*pageBytes)
	text := strings.Replace(sharerText, "extra_config:\n", arena, 1)
	cfg, err := config.Parse("test", fmt.Appendf(nil, text, channel, 8*pageBytes, directoryKeys(instance, at)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.InitPorts[0], cfg.Share.LookupPorts[0] = 0, 0; int(cfg.ArenaPages) != pages {
		t.Fatalf("the arena has %d pages, want %d", cfg.ArenaPages, pages)
	}
	return cfg
}

// What one node has stored another one reads from copies, byte by byte, a prefix as long as there is room for. Both do.
// Nothing stays in the arena, and nothing stays pinned.
func TestSharingFromCopies(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			owner := open(t, copierConfig(t, channel, "a", config.MonitorPorts{}, 4))
			reader := open(t, copierConfig(t, channel, "b", config.MonitorPorts{}, 16))
			keys := keysOf("copied", 4)
			mustStore(t, owner, keys)
			get := func(n, of *runtime.Node, keys []string, hits int) {
				t.Helper()
				got, err := n.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys,
					From: runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(of).InitPort}})
				if want := effects.NotFound; hits < len(keys) && runtime.CodeOf(err) != want || hits == len(keys) && err != nil {
					t.Errorf("the get ends as %v", err)
				}
				wantContent(t, got, keys[:hits], pageBytes)
				mustRelease(t, got)
			}
			get(reader, owner, keys, 2) // Of four pages no peer has more than it leaves.
			waitFor(t, owner, "the end of all reads", isQuiet)
			get(reader, owner, keys, 4) // What is here is not asked for again.
			back := keysOf("back", 3)
			mustStore(t, reader, back)
			get(owner, reader, back, 3)
			for _, n := range []*runtime.Node{reader, owner} {
				waitFor(t, n, "the end of all reads", isQuiet)
				if s := n.Stats(); s.ArenaTotal == 0 || s.ArenaFree != s.ArenaTotal || s.Pinned != 0 {
					t.Errorf("%d of %d arena pages are free, %d of the pool are pinned", s.ArenaFree, s.ArenaTotal, s.Pinned)
				}
				wantNothingHeld(t, n)
				mustClose(t, n)
			}
		})
	}
}
