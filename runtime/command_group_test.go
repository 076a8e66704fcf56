package runtime_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// Each test moves partsChunks chunks in parts of partsMost, the last of which is not a full one.
const partsChunks, partsMost = 22, 4

// inParts gives a node of these tests pages enough, and so few chunks for each of its commands.
func inParts(tb testing.TB, cfg *config.Config, pages uint32) *config.Config {
	tb.Helper()
	cfg.BufferBytes = uint64(pages) * pageBytes
	if err := cfg.SetLayout(cfg.Layout); err != nil {
		tb.Fatal(err)
	}
	cfg.Limits.ArrayLen = partsMost
	return cfg
}

// A large push goes in parts that are under way together, and is one call; an offer of as many chunks has as few parts
// as messages hold it.
func TestLargePushesGoAbreast(t *testing.T) {
	const chunks = 2*1024 + 1
	for want, sc := range map[int]*config.Config{3: senderConfig(t, "shm", effects.Addr{}),
		2: pullSenderConfig(t, "shm", effects.Addr{})} {
		rc := receiverConfig(t, "shm", nil)
		for _, cfg := range []*config.Config{sc, rc} {
			cfg.BufferBytes = chunks * pageBytes
			if err := cfg.SetLayout(cfg.Layout); err != nil {
				t.Fatal(err)
			}
		}
		s, r := open(t, sc), open(t, rc)
		puts := 0
		s.Watch(func(ev effects.Event) {
			if c, ok := ev.(*effects.Command); ok {
				if put, ok := c.Body.(*engine.Put); ok {
					puts++
					if put.Last != (puts == want) {
						t.Errorf("part %d of %d is the last: %v", puts, want, put.Last)
					}
				}
			}
		}, func(effects.Effect) {})
		keys, pages := keysOf("abreast", chunks), mustReserve(t, s, chunks)
		fill(t, pages, keys)
		res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages, Last: true})
		if err != nil || res.Sent != chunks || puts != want {
			t.Errorf("%d chunks were sent in %d parts, want %d: %v", res.Sent, puts, want, err)
		}
		got, err := r.Receiver().Get(within(t), runtime.Get{Request: "r", Keys: keys})
		if err != nil {
			t.Fatal(err)
		}
		wantContent(t, got, keys, pageBytes)
		mustRelease(t, got)
		wantReturned(t, res)
		mustRelease(t, pages)
		mustClose(t, s)
		mustClose(t, r)
	}
}

// What is larger than limits.keys_per_batch works as if it were not: over each plane, pushed, pulled, and kept for
// later.
func TestCallsInParts(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		for _, mode := range []string{"push", "pull", "delayed"} {
			t.Run(channel+" "+mode, func(t *testing.T) {
				x := startProxy(t)
				sc, rc := senderConfig(t, channel, x.addr), receiverConfig(t, channel, nil)
				if mode != "push" {
					sc = pullSenderConfig(t, channel, x.addr)
				}
				if mode == "delayed" {
					rc = delayedConfig(t, channel, 4)
				}
				s, r := open(t, inParts(t, sc, 2*partsChunks)), open(t, inParts(t, rc, 2*partsChunks))
				defer mustClose(t, s)
				defer mustClose(t, r)
				keys := keysOf("parts", partsChunks)
				pages := mustReserve(t, s, partsChunks)
				fill(t, pages, keys)
				res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages,
					LastChunkTokens: 4, Last: true})
				if err != nil || res.Sent != partsChunks {
					t.Fatalf("%d sent: %v", res.Sent, err)
				}
				if told := <-x.told; told != "r" {
					t.Errorf("the proxy is told of %q", told)
				}
				if hits, err := r.Receiver().Contains(within(t), keys); err != nil || hits != partsChunks {
					t.Errorf("contains: %d, %v", hits, err)
				}
				if mode == "delayed" {
					wantFetchedInParts(t, r, keys)
				} else {
					got, err := r.Receiver().Get(within(t), runtime.Get{Request: "r", Keys: keys})
					if err != nil {
						t.Fatal(err)
					}
					wantContent(t, got, keys, pageBytes/4)
					mustRelease(t, got)
				}
				wantReturned(t, res)
				mustRelease(t, pages)
				select {
				case told := <-x.told:
					t.Errorf("the proxy is told again, of %q", told)
				default:
				}
			})
		}
	}
}

func wantFetchedInParts(t *testing.T, r *runtime.Node, keys []string) {
	t.Helper()
	next := 0
	taken, err := r.Receiver().Fetch(within(t), runtime.Fetch{Request: "r", Keys: keys,
		Scatter: func(_ context.Context, first int, chunks [][]byte) error {
			if first != next {
				t.Errorf("chunk %d comes after chunk %d", first, next-1)
			}
			for i, chunk := range chunks {
				if !isContent(chunk, keys[first+i]) {
					t.Errorf("chunk %d has wrong bytes", first+i)
				}
			}
			next += len(chunks)
			return nil
		}})
	if err != nil || taken != len(keys) || next != len(keys) {
		t.Errorf("%d taken, %d scattered: %v", taken, next, err)
	}
}

// A fetch of which one part fails gives up what is left of it: its senders have their memory back at once, and not when
// its time is over. Another request's offers of the same chunks stay.
func TestFetchInPartsThatFailsLeavesNothing(t *testing.T) {
	broken := errors.New("the device is on fire")
	for name, c := range map[string]struct {
		fails   int // the chunk that the engine does not take
		missing int // the first chunk that nobody offers
		code    effects.Code
	}{
		"in the first part": {fails: 0, missing: partsChunks, code: effects.Faulted},
		"in a later part":   {fails: partsMost, missing: partsChunks, code: effects.Faulted},
		"while it waits":    {fails: partsChunks + 1, missing: 2 * partsMost, code: effects.Cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, inParts(t, pullSenderConfig(t, "shm", effects.Addr{}), 2*partsChunks))
			r := opened(t, inParts(t, delayedConfig(t, "shm", 4), 2*partsChunks))
			keys := keysOf("left", partsChunks)
			given := []runtime.PutResult{mustOffer(t, s, r, "r", keys[:c.missing])}
			if c.missing+1 < len(keys) {
				given = append(given, mustOffer(t, s, r, "r", keys[c.missing+1:]))
			}
			other := mustOffer(t, s, r, "other", keys[partsChunks-1:])
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, err := r.Receiver().Fetch(ctx, runtime.Fetch{Request: "r", Keys: keys, Timeout: limit,
					Scatter: func(_ context.Context, first int, chunks [][]byte) error {
						if c.fails < first+len(chunks) {
							return broken
						}
						return nil
					}})
				ended <- err
			}()
			if c.missing < len(keys) {
				left := len(keys) - c.missing // What comes after the missing one, and the other request's.
				waitFor(t, r, "the part that waits", func(s rank.Stats) bool { return s.Fetches == 1 && s.Locations == left })
				cancel()
			}
			err := <-ended
			wantCode(t, err, c.code)
			for _, res := range given {
				wantReturned(t, res)
			}
			if isReturned(other) {
				t.Error("another request's offer was given up as well")
			}
			mustFetch(t, r, "other", keys[partsChunks-1:])
			wantReturned(t, other)
			wantNoOffers(t, r)
		})
	}
}

// A fetch in parts whose first one never began leaves everything as it was, as one in a single part does.
func TestFetchInPartsThatNeverBegan(t *testing.T) {
	s := opened(t, inParts(t, pullSenderConfig(t, "shm", effects.Addr{}), 2*partsChunks))
	r := opened(t, inParts(t, delayedConfig(t, "shm", 4), 2*partsChunks))
	keys := keysOf("never", partsChunks)
	later := mustOffer(t, s, r, "r", keys[1:])
	_, err := r.Receiver().Fetch(within(t), runtime.Fetch{Request: "r", Keys: keys, Scatter: failingScatter(t),
		Timeout: time.Millisecond})
	wantCode(t, err, effects.NotFound)
	first := mustOffer(t, s, r, "r", keys[:1])
	mustFetch(t, r, "r", keys)
	wantReturned(t, first)
	wantReturned(t, later)
}

// A Get in parts ends with the first chunk that is missing, in whichever part, and what comes after it stays.
func TestGetInPartsIsAPrefix(t *testing.T) {
	s, r := open(t, inParts(t, senderConfig(t, "shm", effects.Addr{}), partsChunks)),
		open(t, inParts(t, receiverConfig(t, "shm", nil), partsChunks))
	defer mustClose(t, s)
	defer mustClose(t, r)
	keys := keysOf("prefix", partsChunks)
	pages := mustReserve(t, s, partsChunks)
	defer mustRelease(t, pages)
	fill(t, pages, keys)
	const missing = 9
	for _, part := range [][2]int{{0, missing}, {missing + 1, partsChunks}} {
		if _, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys[part[0]:part[1]],
			Pages: pages, First: part[0]}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.Receiver().Get(within(t), runtime.Get{Request: "r", Keys: keys, Timeout: time.Millisecond})
	if runtime.CodeOf(err) != effects.NotFound || !strings.Contains(err.Error(), "chunk 9 of") {
		t.Fatal(err)
	}
	wantContent(t, got, keys[:missing], pageBytes)
	mustRelease(t, got)
	if hits, err := r.Receiver().Contains(within(t), keys[missing+1:]); err != nil || hits != partsChunks-missing-1 {
		t.Errorf("%d of %d chunks beyond the missing one stay: %v", hits, partsChunks-missing-1, err)
	}
}

// A Put in parts that is taken back keeps nothing: each part has its outcome, the proxy is told once of all that is
// missing, and the pages come back.
func TestPutInPartsIsTakenBack(t *testing.T) {
	x := startProxy(t)
	s := open(t, inParts(t, senderConfig(t, "shm", x.addr), partsChunks))
	defer mustClose(t, s)
	pages := mustReserve(t, s, partsChunks)
	ctx, cancel := context.WithCancel(within(t))
	nobody := reservedPeer(t)
	go cancel()
	res, err := s.Sender().Put(ctx, runtime.Put{Peer: nobody, Request: "r", Keys: keysOf("back", partsChunks),
		Pages: pages, Last: true})
	var e *runtime.Error
	if !errors.As(err, &e) || e.Count != partsChunks || res.Sent != 0 {
		t.Errorf("%d sent, %d missing: %v", res.Sent, e.Count, err)
	}
	wantReturned(t, res)
	if told := <-x.told; told != "r" {
		t.Errorf("the proxy is told of %q", told)
	}
	mustRelease(t, pages)
}

// A batch of which one part could not be taken is refused as a whole, before any of it is.
func TestPutInPartsIsRefusedAsAWhole(t *testing.T) {
	s := open(t, inParts(t, senderConfig(t, "shm", effects.Addr{}), partsChunks))
	defer mustClose(t, s)
	pages := mustReserve(t, s, partsChunks)
	defer mustRelease(t, pages)
	keys := keysOf("whole", partsChunks)
	keys[partsChunks-1] = "no key"
	res, err := s.Sender().Put(within(t), runtime.Put{Peer: runtime.Peer{Host: "127.0.0.1", InitPort: 1, AllocPort: 2},
		Keys: keys, Pages: pages})
	if runtime.CodeOf(err) != effects.Invalid {
		t.Errorf("%+v, %v", res, err)
	}
	if puts := s.Stats().Puts; puts != 0 {
		t.Errorf("%d puts", puts)
	}
}

// Two that reserve more than a part each, of a pool that holds but one of them, do not wait for each other: who comes
// first is served first. One that ends in vain keeps none of its parts.
func TestReservesInParts(t *testing.T) {
	s := open(t, inParts(t, senderConfig(t, "shm", effects.Addr{}), partsChunks))
	defer mustClose(t, s)
	const n = partsChunks - partsMost - 1
	first := mustReserve(t, s, n)
	ctx, cancel := context.WithCancel(within(t))
	ended := make(chan error, 1)
	go func() {
		_, err := s.Sender().Reserve(ctx, n)
		ended <- err
	}()
	second := make(chan *runtime.Pages, 1)
	const parts = (n + partsMost - 1) / partsMost
	for s.Stats().Reserves < 2*parts { // The one who gives up is in line, with one part in hand.
	}
	go func() { second <- mustReserve(t, s, n) }()
	for s.Stats().Reserves < 3*parts {
	}
	cancel()
	if err := <-ended; runtime.CodeOf(err) != effects.Cancelled {
		t.Errorf("a reserve that was taken back ends as %v", err)
	}
	mustRelease(t, first)
	mustRelease(t, <-second)
	if free := s.Stats().PagesFree; free != partsChunks {
		t.Errorf("%d of %d pages are free", free, partsChunks)
	}
}
