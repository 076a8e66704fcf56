package runtime_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// withChecksums has a node state and compare checksums.
func withChecksums(cfg *config.Config) *config.Config {
	cfg.Data.Checksums = true
	return cfg
}

// flipBit changes a bit in the middle of a page of a handle, as bad memory would.
func flipBit(t testing.TB, p *runtime.Pages, page int) {
	t.Helper()
	b, err := p.Bytes(page)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
}

// wantCompared demands that a node has compared bytes, and that so many pages were corrupt.
func wantCompared(t *testing.T, n *runtime.Node, corrupt uint64) {
	t.Helper()
	if c := n.Checksums(); c.Bytes == 0 || c.Corrupt != corrupt {
		t.Errorf("%+v, want %d corrupt pages of some", c, corrupt)
	}
}

// wantKept awaits that so many corrupt pages have been written to files, whole.
func wantKept(t *testing.T, cfg *config.Config, pages int) {
	t.Helper()
	kept := func() bool {
		files, _ := filepath.Glob(filepath.Join(cfg.Data.KeepCorrupt, "page-*.bin"))
		for _, file := range files {
			if b, err := os.ReadFile(file); err != nil || len(b) != pageBytes {
				return false
			}
		}
		return len(files) == pages
	}
	for ctx := within(t); !kept(); {
		if ctx.Err() != nil {
			t.Fatal("the changed page was not kept")
		}
	}
}

// Chunks that are as their engine left them arrive, and every one is compared. A page that changed in the sender's memory
// after the put had begun is refused at the receiver, and the sender's engine learns it.
func TestChecksumsOfPushes(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			cfg := withChecksums(receiverConfig(t, channel, nil))
			cfg.Data.KeepCorrupt = t.TempDir()
			r := open(t, cfg)
			s := open(t, withChecksums(senderConfig(t, channel, effects.Addr{})))
			first, second := keysOf("first", 8), keysOf("second", 1)
			pages := mustReserve(t, s, 8)
			fill(t, pages, first)
			if _, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r1", Keys: first, Pages: pages, Last: true}); err != nil {
				t.Fatal(err)
			}
			wantCompared(t, r, 0)

			t.Log("# the receiver is full, so the next put waits; meanwhile a bit of its page changes")
			fill(t, pages, second)
			ended := make(chan error, 1)
			go func() {
				_, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r2", Keys: second, Pages: pages, Last: true})
				ended <- err
			}()
			waitFor(t, r, "the waiting put", func(s rank.Stats) bool { return s.PendingRequests > 0 })
			flipBit(t, pages, 0)
			got, err := r.Receiver().Get(within(t), runtime.Get{Request: "r1", Keys: first})
			if err != nil {
				t.Fatal(err)
			}
			wantContent(t, got, first, pageBytes)
			for i := range first {
				if err := got.Verify(i); err != nil {
					t.Error(err)
				}
			}
			mustRelease(t, got)
			if err := <-ended; runtime.CodeOf(err) != effects.Corrupt {
				t.Errorf("the put of a changed page ends as %v", err)
			}
			wantCompared(t, r, 1)
			if hits, err := r.Receiver().Contains(within(t), second); err != nil || hits != 0 {
				t.Errorf("the changed chunk is there: %d, %v", hits, err)
			}
			wantKept(t, cfg, 1)
			mustRelease(t, pages)
			mustClose(t, s)
			mustClose(t, r)
		})
	}
}

// An offered page that changes before it is read fails the fetch.
func TestChecksumsOfOffers(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			r := open(t, withChecksums(delayedConfig(t, channel, 4)))
			s := open(t, withChecksums(pullSenderConfig(t, channel, effects.Addr{})))
			keys := keysOf("offer", 3)
			pages := mustReserve(t, s, 3)
			fill(t, pages, keys)
			res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r1", Keys: keys, Pages: pages, Last: true})
			if err != nil {
				t.Fatal(err)
			}
			mustFetch(t, r, "r1", keys[:1])
			flipBit(t, pages, 1)
			_, err = r.Receiver().Fetch(within(t), runtime.Fetch{Request: "r1", Keys: keys[1:], Scatter: failingScatter(t), Timeout: limit})
			if runtime.CodeOf(err) != effects.Corrupt {
				t.Errorf("the fetch of a changed page ends as %v", err)
			}
			wantCompared(t, r, 1)
			wantReturned(t, res)
			mustRelease(t, pages)
			mustClose(t, s)
			mustClose(t, r)
		})
	}
}

// A chunk keeps the checksum that its first engine stated, wherever it goes: a chunk that changed in a cache is not taken
// from there, and the cache's own engine can find it.
func TestChecksumsOfSharedChunks(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			_, at := startDirectory(t)
			nodes := make([]*runtime.Node, 3)
			for i, name := range []string{"a", "b", "c"} {
				nodes[i] = open(t, withChecksums(sharerConfig(t, channel, name, at)))
				defer mustClose(t, nodes[i])
			}
			a, b, c := nodes[0], nodes[1], nodes[2]
			keys := keysOf("shared", 2)
			mustStore(t, a, keys)
			awaitLocations(t, b, keys, 2)
			wantShared(t, b, keys, 2)
			wantCompared(t, b, 0)

			t.Log("# a bit changes in the cache of b, which never had the checksum from its own engine")
			got, err := b.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			flipBit(t, got, 0)
			if err := got.Verify(0); runtime.CodeOf(err) != effects.Corrupt {
				t.Errorf("verify finds %v", err)
			}
			if err := got.Verify(1); err != nil {
				t.Error(err)
			}
			mustRelease(t, got)
			_, err = c.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys,
				From: runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(b).InitPort}})
			if runtime.CodeOf(err) != effects.Corrupt {
				t.Errorf("the get of a changed chunk ends as %v", err)
			}
			wantCompared(t, c, 1)
		})
	}
}

// Where the receiver compares nothing, the sender's checksums change nothing; and chunks without a checksum are taken.
func TestChecksumsAtOneEnd(t *testing.T) {
	for _, sums := range [][2]bool{{true, false}, {false, true}} {
		rc, sc := receiverConfig(t, "tcp", nil), senderConfig(t, "tcp", effects.Addr{})
		sc.Data.Checksums, rc.Data.Checksums = sums[0], sums[1]
		r, s := open(t, rc), open(t, sc)
		keys := keysOf("one end", 2)
		pages := mustReserve(t, s, 2)
		fill(t, pages, keys)
		if _, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages, Last: true}); err != nil {
			t.Fatal(err)
		}
		if got := r.Checksums(); got != (runtime.Checksums{}) {
			t.Errorf("compared %+v", got)
		}
		mustRelease(t, pages)
		mustClose(t, s)
		mustClose(t, r)
	}
}

// Chunks that an owner writes into pages of the node that asks are compared with the checksums in the owner's reply,
// before they are readable.
func TestChecksumsOfSharedPushes(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			_, at := startDirectory(t)
			nodes := make([]*runtime.Node, 2)
			for i, name := range []string{"a", "b"} {
				cfg := withChecksums(sharerConfig(t, channel, name, at))
				cfg.Share.Pull = false
				nodes[i] = open(t, cfg)
				defer mustClose(t, nodes[i])
			}
			a, b := nodes[0], nodes[1]
			keys, more := keysOf("shared", 2), keysOf("more", 2)
			mustStore(t, a, keys)
			awaitLocations(t, b, keys, 2)
			wantShared(t, b, keys, 2)
			wantCompared(t, b, 0)
			got, err := b.Sharing().Get(within(t), runtime.SharedGet{Request: "r", Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			flipBit(t, got, 0)
			if err := got.Verify(0); runtime.CodeOf(err) != effects.Corrupt {
				t.Errorf("verify finds %v", err)
			}
			mustRelease(t, got)

			t.Log("# a bit changes in the cache of a, after its engine has stored the chunks")
			mustStore(t, a, more)
			own, err := a.Sharing().Get(within(t), runtime.SharedGet{Request: "own", Keys: more})
			if err != nil {
				t.Fatal(err)
			}
			flipBit(t, own, 1)
			mustRelease(t, own)
			got, err = b.Sharing().Get(within(t), runtime.SharedGet{Request: "r2", Keys: more,
				From: runtime.SharingPeer{Host: "127.0.0.1", InitPort: peerOf(a).InitPort}})
			if runtime.CodeOf(err) != effects.Corrupt || got.Len() != 1 {
				t.Errorf("the get of a changed second chunk ends as %v", err)
			}
			mustRelease(t, got)
			wantCompared(t, b, 1)
		})
	}
}
