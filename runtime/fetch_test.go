package runtime_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// A device is an engine's memory: it takes chunks and compares them with their keys.
type device struct {
	tb      testing.TB
	keys    []string
	lengths []int // of the chunks taken
	batches []int // chunks of each call
}

func (d *device) scatter(_ context.Context, first int, chunks [][]byte) error {
	if first != len(d.lengths) {
		d.tb.Errorf("chunks from %d on came after %d", first, len(d.lengths))
	}
	for i, b := range chunks {
		if !isContent(b, d.keys[first+i]) {
			d.tb.Errorf("chunk %d has wrong bytes", first+i)
		}
		d.lengths = append(d.lengths, len(b))
	}
	d.batches = append(d.batches, len(chunks))
	return nil
}

// mustFetch fetches chunks and compares them.
func mustFetch(tb testing.TB, n *runtime.Node, request string, keys []string) *device {
	tb.Helper()
	d := &device{tb: tb, keys: keys}
	taken, err := n.Receiver().Fetch(within(tb), runtime.Fetch{Request: request, Keys: keys, Scatter: d.scatter,
		Timeout: limit})
	if err != nil || taken != len(keys) || len(d.lengths) != len(keys) {
		tb.Fatalf("fetched %d of %d chunks, the engine took %d: %v", taken, len(keys), len(d.lengths), err)
	}
	return d
}

// failingScatter is an engine's code that must not be reached.
func failingScatter(tb testing.TB) runtime.Scatter {
	return func(context.Context, int, [][]byte) error {
		tb.Error("chunks were scattered")
		return nil
	}
}

// wantHits demands that so many chunks could be had now.
func wantHits(tb testing.TB, n *runtime.Node, keys []string, want int) {
	tb.Helper()
	if hits, err := n.Receiver().Contains(within(tb), keys); err != nil || hits != want {
		tb.Errorf("%d chunks could be had, %v; want %d", hits, err, want)
	}
}

// wantNoOffers demands that a receiver of delayed pull keeps and holds nothing of its senders'.
func wantNoOffers(tb testing.TB, n *runtime.Node) {
	tb.Helper()
	if s := n.Stats(); s.Offers+s.Locations+s.Fetches+s.Staged != 0 {
		tb.Errorf("something of senders' is still kept: %+v", s)
	}
	wantNothingHeld(tb, n)
}

// opened is a node that the test's end closes, after what was released at it.
func opened(tb testing.TB, cfg *config.Config) *runtime.Node {
	tb.Helper()
	n := open(tb, cfg)
	tb.Cleanup(func() { mustClose(tb, n) })
	return n
}

// mustOffer puts chunks to a receiver that keeps them for later, and gives their pages back in due time.
func mustOffer(tb testing.TB, s, r *runtime.Node, request string, keys []string) runtime.PutResult {
	tb.Helper()
	pages := mustReserve(tb, s, len(keys))
	fill(tb, pages, keys)
	res, err := s.Sender().Put(within(tb), runtime.Put{Peer: peerOf(r), Request: request, Keys: keys, Pages: pages})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { mustRelease(tb, pages) })
	return res
}

func TestFetchOverEachPlane(t *testing.T) {
	for _, channel := range []string{"shm", "tcp", "auto"} {
		t.Run(channel, func(t *testing.T) {
			proxy := startProxy(t)
			r := open(t, delayedConfig(t, channel, 4))
			a, b := open(t, pullSenderConfig(t, channel, effects.Addr{})), open(t, pullSenderConfig(t, channel, proxy.addr))
			pusher := open(t, senderConfig(t, channel, effects.Addr{}))
			keys := keysOf("fetch", 7)

			t.Log("# of one request the first and the last but one were pushed, the others are offered by two senders")
			put := runtime.Put{Peer: peerOf(r), Request: "r1"}
			var results []runtime.PutResult
			var all []*runtime.Pages
			for _, part := range []struct {
				of      *runtime.Node
				from, n int
			}{{pusher, 0, 1}, {a, 1, 3}, {b, 4, 1}, {pusher, 5, 1}, {b, 6, 1}} {
				put.Keys = keys[part.from : part.from+part.n]
				put.Pages = mustReserve(t, part.of, part.n)
				fill(t, put.Pages, put.Keys)
				if part.from == 6 {
					put.Last, put.LastChunkTokens = true, 5
				}
				res, err := part.of.Sender().Put(within(t), put)
				if err != nil || res.Sent != part.n {
					t.Fatalf("put from %d: %+v, %v", part.from, res, err)
				}
				results, all = append(results, res), append(all, put.Pages)
			}
			if got := <-proxy.told; got != "r1" {
				t.Errorf("the proxy was told of %q", got)
			}

			t.Log("# they are known, and those offered cost no page here")
			wantHits(t, r, append(keys, keysOf("other", 1)...), 7)
			if s := r.Stats(); s.PagesTotal-s.PagesFree != 2 || s.Offers != 3 || s.Locations != 5 {
				t.Errorf("of 7 chunks 2 are here and 5 in 3 offers: %+v", s)
			}
			for i, res := range results {
				if pushed := i == 0 || i == 3; isReturned(res) != pushed {
					t.Errorf("put %d: returned is %t", i, !pushed)
				}
			}

			d := mustFetch(t, r, "r1", keys)
			if got := d.lengths[6]; got != pageBytes*5/16 {
				t.Errorf("the last chunk has %d bytes", got)
			}
			for i, n := range d.batches {
				if n > 2 {
					t.Errorf("batch %d has %d chunks, with 4 pages of staging", i, n)
				}
			}
			t.Log("# what was read is the senders' engines' again, and what was pushed for this request is consumed")
			for _, res := range results {
				wantReturned(t, res)
			}
			wantHits(t, r, keys, 0)
			if s := r.Stats(); s.StagedMax > 4 {
				t.Errorf("%d pages were staged", s.StagedMax)
			}
			for _, pages := range all {
				mustRelease(t, pages)
			}
			for _, n := range []*runtime.Node{a, b, pusher, r} {
				wantNoOffers(t, n)
				mustClose(t, n)
			}
		})
	}
}

// With one page of staging nothing overlaps, with two or three a chunk is read while another is scattered; each
// fetch ends, also beside others.
func TestFetchWithFewStagingPages(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		for staging := uint32(1); staging <= 3; staging++ {
			s := opened(t, pullSenderConfig(t, channel, effects.Addr{}))
			r := opened(t, delayedConfig(t, channel, staging))
			keys := keysOf("few", 6)
			res := mustOffer(t, s, r, "r", keys)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				mustFetchBeside(t, r, keys)
			}()
			mustFetchBeside(t, r, keys)
			<-ended
			t.Log("# fetches that are of no request consume nothing")
			wantHits(t, r, keys, 6)
			if isReturned(res) {
				t.Error("the offer ended")
			}
			if got := r.Stats().StagedMax; got > int(staging) {
				t.Errorf("%d pages were staged of %d", got, staging)
			}
			mustFetch(t, r, "r", keys)
			wantReturned(t, res)
			wantNoOffers(t, r)
		}
	}
}

// mustFetchBeside is mustFetch for goroutines that are not the test's.
func mustFetchBeside(t *testing.T, n *runtime.Node, keys []string) {
	d := &device{tb: t, keys: keys}
	if taken, err := n.Receiver().Fetch(within(t), runtime.Fetch{Keys: keys, Scatter: d.scatter}); err != nil ||
		taken != len(keys) {
		t.Errorf("fetched %d chunks, %v", taken, err)
	}
}

// The engine wants only the first chunks. The others stay until it gives the request up; then their sender has them
// back.
func TestFetchOfAPrefixAndAbandon(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			s := opened(t, pullSenderConfig(t, channel, effects.Addr{}))
			r := opened(t, delayedConfig(t, channel, 2))
			keys := keysOf("prefix", 5)
			res := mustOffer(t, s, r, "r", keys)
			mustFetch(t, r, "r", keys[:2])
			wantHits(t, r, keys[2:], 3)
			if isReturned(res) {
				t.Error("the offer ended with chunks left")
			}
			if err := r.Receiver().Abandon("r"); err != nil {
				t.Error(err)
			}
			wantReturned(t, res)
			wantHits(t, r, keys[2:], 0)
			wantNoOffers(t, r)
		})
	}
}

// A fetch may ask early: it begins when all of its chunks are known.
func TestFetchWaitsForWhatIsComing(t *testing.T) {
	s := opened(t, pullSenderConfig(t, "shm", effects.Addr{}))
	r := opened(t, delayedConfig(t, "shm", 2))
	keys := keysOf("coming", 4)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d := &device{tb: t, keys: keys}
		if taken, err := r.Receiver().Fetch(within(t), runtime.Fetch{Request: "r", Keys: keys, Scatter: d.scatter,
			Timeout: limit}); err != nil || taken != 4 {
			t.Errorf("fetched %d chunks, %v", taken, err)
		}
	}()
	waitFor(t, r, "the fetch", func(s rank.Stats) bool { return s.Fetches == 1 })
	first := mustOffer(t, s, r, "r", keys[:2])
	second := mustOffer(t, s, r, "r", keys[2:])
	<-ended
	wantReturned(t, first)
	wantReturned(t, second)
}

// What nobody offers in time is not found, and the rest stays for who wants it.
func TestFetchOfWhatNeverComes(t *testing.T) {
	s := opened(t, pullSenderConfig(t, "shm", effects.Addr{}))
	r := opened(t, delayedConfig(t, "shm", 2))
	keys := keysOf("never", 2)
	res := mustOffer(t, s, r, "r", keys[:1])
	taken, err := r.Receiver().Fetch(within(t), runtime.Fetch{Request: "r", Keys: keys, Scatter: failingScatter(t),
		Timeout: time.Millisecond})
	wantCode(t, err, effects.NotFound)
	if taken != 0 {
		t.Errorf("%d chunks", taken)
	}
	mustFetch(t, r, "r", keys[:1])
	wantReturned(t, res)
}

// The engine's device fails: the request is a miss from there on, and its sender has its memory back.
func TestFetchThatTheEngineFails(t *testing.T) {
	s := opened(t, pullSenderConfig(t, "shm", effects.Addr{}))
	r := opened(t, delayedConfig(t, "shm", 2))
	keys := keysOf("broken", 4)
	res := mustOffer(t, s, r, "r", keys)
	broken := errors.New("the device is on fire")
	taken, err := r.Receiver().Fetch(within(t), runtime.Fetch{Request: "r", Keys: keys,
		Scatter: func(_ context.Context, first int, _ [][]byte) error {
			if first == 2 {
				return broken
			}
			return nil
		}})
	wantCode(t, err, effects.Faulted)
	if taken != 2 || !errors.Is(err, broken) {
		t.Errorf("%d chunks were taken, %v; want 2, and the device's own error", taken, err)
	}
	wantReturned(t, res)
	wantHits(t, r, keys, 0)
	wantNoOffers(t, r)
}

// The end of the caller's context ends the fetch, which still waits for the engine's call: what that stores into is
// the caller's alone when Fetch returns.
func TestFetchThatIsCancelled(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			s := opened(t, pullSenderConfig(t, channel, effects.Addr{}))
			r := opened(t, delayedConfig(t, channel, 2))
			keys := keysOf("cancel", 4)
			res := mustOffer(t, s, r, "r", keys)
			ctx, cancel := context.WithCancel(t.Context())
			running := false
			taken, err := r.Receiver().Fetch(ctx, runtime.Fetch{Request: "r", Keys: keys,
				Scatter: func(call context.Context, _ int, _ [][]byte) error {
					running = true
					cancel()
					<-call.Done()
					running = false
					return call.Err()
				}})
			wantCode(t, err, effects.Cancelled)
			if taken != 0 || running || !errors.Is(err, context.Canceled) {
				t.Errorf("%d chunks, %v; a call still runs: %t", taken, err, running)
			}
			t.Log("# nothing is tried again, and nothing is kept")
			wantReturned(t, res)
			wantHits(t, r, keys, 0)
			waitFor(t, r, "the end of all reads", func(s rank.Stats) bool { return s.Fetches+s.Staged == 0 })
			wantNoOffers(t, r)
		})
	}
}

// The engine takes its put back while a receiver keeps it: the receiver hears it, and knows nothing of it any more.
func TestTakeBackOfAKeptOffer(t *testing.T) {
	s := opened(t, pullSenderConfig(t, "shm", effects.Addr{}))
	r := opened(t, delayedConfig(t, "shm", 2))
	keys := keysOf("back", 3)
	res := mustOffer(t, s, r, "r", keys)
	if err := s.Sender().WithdrawPut(res); err != nil {
		t.Error(err)
	}
	wantReturned(t, res)
	waitFor(t, r, "the end of the offer", func(s rank.Stats) bool { return s.Offers == 0 })
	wantHits(t, r, keys, 0)
}

// A receiver that closes gives back what it keeps, so its senders need not wait for any time.
func TestDrainOfAReceiverThatKeepsOffers(t *testing.T) {
	s := opened(t, pullSenderConfig(t, "shm", effects.Addr{}))
	r := open(t, delayedConfig(t, "shm", 2))
	res := mustOffer(t, s, r, "r", keysOf("drain", 4))
	mustClose(t, r)
	wantReturned(t, res)
}

// A sender that closes waits for what is read of it meanwhile.
func TestDrainOfASenderWhoseOffersAreKept(t *testing.T) {
	s := open(t, pullSenderConfig(t, "shm", effects.Addr{}))
	r := opened(t, delayedConfig(t, "shm", 2))
	keys := keysOf("drain", 4)
	pages := mustReserve(t, s, 4)
	fill(t, pages, keys)
	res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() {
		_, err := s.Drain(within(t))
		closed <- err
	}()
	mustFetch(t, r, "r", keys)
	wantReturned(t, res)
	mustRelease(t, pages)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	mustClose(t, s)
}

// A fetch that does not say where chunks go, or says it for another kind of pool, is refused before it takes anything.
func TestFetchForAnotherPoolIsRefused(t *testing.T) {
	s := opened(t, pullSenderConfig(t, "shm", effects.Addr{}))
	r := opened(t, delayedConfig(t, "shm", 2))
	keys := keysOf("kind", 2)
	res := mustOffer(t, s, r, "r", keys)
	onDevice := func(context.Context, int, []runtime.DevicePage) error { t.Error("called"); return nil }
	for _, f := range []runtime.Fetch{
		{Request: "r", Keys: keys},
		{Request: "r", Keys: keys, Scatter: failingScatter(t), ScatterDevice: onDevice},
		{Request: "r", Keys: keys, ScatterDevice: onDevice},
	} {
		if taken, err := r.Receiver().Fetch(within(t), f); taken != 0 || runtime.CodeOf(err) != effects.Invalid {
			t.Errorf("fetched %d chunks, %v", taken, err)
		}
	}
	mustFetch(t, r, "r", keys)
	wantReturned(t, res)
}
