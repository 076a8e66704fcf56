package runtime_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/control/zmq"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// wantReturned waits until nothing reads the pages of a put any more.
func wantReturned(tb testing.TB, res runtime.PutResult) {
	tb.Helper()
	select {
	case <-res.Returned():
	case <-within(tb).Done():
		tb.Fatal("the pages of a put are still lent")
	}
}

func isReturned(res runtime.PutResult) bool {
	select {
	case <-res.Returned():
		return true
	default:
		return false
	}
}

// waitFor looks at a node after each of its steps until what it counts is as it must be.
func waitFor(tb testing.TB, n *runtime.Node, what string, holds func(rank.Stats) bool) {
	tb.Helper()
	stepped := make(chan struct{}, 1)
	n.Watch(func(effects.Event) {
		select {
		case stepped <- struct{}{}:
		default: // Nobody has looked since the last one.
		}
	}, func(effects.Effect) {})
	ctx := within(tb)
	for {
		s := n.Stats()
		if holds(s) {
			return
		}
		select {
		case <-stepped:
		case <-ctx.Done():
			tb.Fatalf("%s never came: %+v", what, s)
		}
	}
}

func TestPullOverEachPlane(t *testing.T) {
	for _, channel := range []string{"shm", "tcp", "auto"} {
		t.Run(channel, func(t *testing.T) {
			proxy := startProxy(t)
			r := open(t, receiverConfig(t, channel, nil))
			s := open(t, pullSenderConfig(t, channel, proxy.addr))
			keys := keysOf("pull", 6)
			pages := mustReserve(t, s, 6)
			fill(t, pages, keys)

			t.Log("# three batches of one request, the last with a partial last chunk")
			put := runtime.Put{Peer: peerOf(r), Request: "r1", Pages: pages}
			var results []runtime.PutResult
			for i := 0; i < 6; i += 2 {
				put.Keys, put.First, put.Last = keys[i:i+2], i, i == 4
				if put.Last {
					put.LastChunkTokens = 5
				}
				res, err := s.Sender().Put(within(t), put)
				if err != nil || res.Sent != 2 {
					t.Fatalf("put %d: %+v, %v", i/2, res, err)
				}
				results = append(results, res)
			}
			if got := <-proxy.told; got != "r1" {
				t.Errorf("the proxy was told of %q", got)
			}

			t.Log("# the proxy was told, so all is there")
			if hits, err := r.Receiver().Contains(within(t), keys); err != nil || hits != 6 {
				t.Errorf("contains: %d, %v", hits, err)
			}
			got, err := r.Receiver().Get(within(t), runtime.Get{Request: "r1", Keys: keys})
			if err != nil {
				t.Fatal(err)
			}
			wantContent(t, got, keys, pageBytes*5/16)

			t.Log("# the receiver said that it has read, so the pages are the engine's again")
			for _, res := range results {
				wantReturned(t, res)
			}
			for i := range pages.Len() {
				b, err := pages.Bytes(i)
				if err != nil {
					t.Fatal(err)
				}
				clear(b)
			}
			wantContent(t, got, keys, pageBytes*5/16)

			t.Log("# what the receiver has is not read again")
			again := runtime.Put{Peer: peerOf(r), Request: "r2", Keys: keys[:2], Pages: pages, Last: true}
			res, err := s.Sender().Put(within(t), again)
			if err != nil || res.Skipped != 2 || res.Sent != 0 {
				t.Errorf("second request: %+v, %v", res, err)
			}
			if err := r.Receiver().Abandon("r2"); err != nil {
				t.Errorf("abandon: %v", err)
			}
			mustRelease(t, got)
			mustRelease(t, pages)
			wantNothingHeld(t, s)
			wantNothingHeld(t, r)
			mustClose(t, s)
			mustClose(t, r)
		})
	}
}

// The second receiver of a chunk reads it while the first one's offer still stands: pages are lent many times over.
func TestOnePageIsPulledByTwoReceivers(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			s := open(t, pullSenderConfig(t, channel, effects.Addr{}))
			defer mustClose(t, s)
			keys := keysOf("two", 4)
			pages := mustReserve(t, s, 4)
			defer mustRelease(t, pages)
			fill(t, pages, keys)
			type outcome struct {
				res runtime.PutResult
				err error
			}
			ended := make(chan outcome, 2)
			var receivers []*runtime.Node
			for range 2 {
				r := open(t, receiverConfig(t, channel, nil))
				defer mustClose(t, r)
				receivers = append(receivers, r)
				go func() {
					res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages})
					ended <- outcome{res, err}
				}()
			}
			for range receivers {
				out := <-ended
				if out.err != nil {
					t.Error(out.err)
				}
				wantReturned(t, out.res) // Before its receiver is closed.
			}
			for _, r := range receivers {
				got, err := r.Receiver().Get(within(t), runtime.Get{Request: "r", Keys: keys})
				if err != nil {
					t.Fatal(err)
				}
				wantContent(t, got, keys, pageBytes)
				mustRelease(t, got)
			}
		})
	}
}

// Of eight pages seven may be lent: a put of five and then one of four cannot be lent at once, and the second
// waits for the first one's memory. One of eight goes in two parts.
func TestPullIsPushedBackAtTheHighWaterMark(t *testing.T) {
	s := open(t, pullSenderConfig(t, "shm", effects.Addr{}))
	defer mustClose(t, s)
	r := open(t, receiverConfig(t, "shm", nil))
	defer mustClose(t, r)
	keys := keysOf("high", 8)
	pages := mustReserve(t, s, 8)
	defer mustRelease(t, pages)
	fill(t, pages, keys)

	if res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "parts", Keys: keys,
		Pages: pages}); err != nil || res.Sent != 8 {
		t.Fatalf("a batch of more than may be lent at a time: %+v, %v", res, err)
	}
	ended := make(chan error, 2)
	for _, part := range []runtime.Put{{Keys: keys[:5]}, {Keys: keys[4:], First: 4}} {
		part.Peer, part.Request, part.Pages = peerOf(r), "r", pages
		go func() {
			_, err := s.Sender().Put(within(t), part)
			ended <- err
		}()
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	got, err := r.Receiver().Get(within(t), runtime.Get{Request: "r", Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	wantContent(t, got, keys, pageBytes)
	mustRelease(t, got)
}

// A receiver without room keeps an offer waiting. The engine takes its put back meanwhile: it has its
// outcome, and its memory, and the receiver reads nothing of it when it has room.
func TestPullIsAbortedWhileItIsOffered(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			sCfg, rCfg := pullSenderConfig(t, channel, effects.Addr{}), receiverConfig(t, channel, nil)
			// Nothing but the engine ends the wait.
			sCfg.Machine.AllocTimeout, rCfg.Machine.AllocTimeout = effects.Duration(limit), effects.Duration(limit)
			sCfg.Machine.ReplyTimeout = effects.Duration(2 * limit)
			s, r := open(t, sCfg), open(t, rCfg)
			defer mustClose(t, r)
			defer mustClose(t, s) // First: its last words want an answer.
			keys := keysOf("abort", 8)
			pages := mustReserve(t, s, 8)
			defer mustRelease(t, pages)
			fill(t, pages, keys)

			t.Log("# the receiver's pool is full of what its engine holds")
			put := runtime.Put{Peer: peerOf(r), Request: "full", Keys: keys[:5], Pages: pages}
			if _, err := s.Sender().Put(within(t), put); err != nil {
				t.Fatal(err)
			}
			held, err := r.Receiver().Get(within(t), runtime.Get{Request: "full", Keys: keys[:5]})
			if err != nil {
				t.Fatal(err)
			}

			ctx, cancel := context.WithCancel(t.Context())
			type outcome struct {
				res runtime.PutResult
				err error
			}
			ended := make(chan outcome, 1)
			go func() {
				others := keysOf("other", 4)
				res, err := s.Sender().Put(ctx, runtime.Put{Peer: peerOf(r), Request: "taken back", Keys: others, Pages: pages,
					Timeout: limit})
				ended <- outcome{res, err}
			}()
			waitFor(t, r, "the offer", func(s rank.Stats) bool { return s.PendingRequests > 0 })
			cancel()
			out := <-ended
			wantCode(t, out.err, effects.Cancelled)
			if !errors.Is(out.err, context.Canceled) {
				t.Errorf("got %v, want one that is context.Canceled", out.err)
			}
			wantReturned(t, out.res)

			t.Log("# now there is room, and what was offered is not to be had any more")
			mustRelease(t, held)
			waitFor(t, r, "the end of the offer", func(s rank.Stats) bool { return s.PendingRequests == 0 })
			if hits, err := r.Receiver().Contains(within(t), keysOf("other", 4)); err != nil || hits != 0 {
				t.Errorf("contains: %d, %v; want nothing of what was taken back", hits, err)
			}
		})
	}
}

// A node that drains with an offer under way waits for it, and closes with nothing lent.
func TestDrainWaitsForWhatIsLent(t *testing.T) {
	s := open(t, pullSenderConfig(t, "shm", effects.Addr{}))
	r := open(t, receiverConfig(t, "shm", nil))
	keys := keysOf("drain", 4)
	pages := mustReserve(t, s, 4)
	fill(t, pages, keys)
	res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages, Last: true})
	if err != nil {
		t.Fatal(err)
	}
	mustRelease(t, pages)
	mustClose(t, s)
	if !isReturned(res) {
		t.Error("a node closed with pages lent")
	}
	mustClose(t, r)
}

func TestTakeBackOfWhatIsBackDoesNothing(t *testing.T) {
	s := open(t, pullSenderConfig(t, "shm", effects.Addr{}))
	defer mustClose(t, s)
	r := open(t, receiverConfig(t, "shm", nil))
	defer mustClose(t, r)
	keys := keysOf("back", 1)
	pages := mustReserve(t, s, 1)
	defer mustRelease(t, pages)
	fill(t, pages, keys)
	res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages})
	if err != nil {
		t.Fatal(err)
	}
	wantReturned(t, res)
	if err := s.Sender().WithdrawPut(res); err != nil {
		t.Error(err)
	}
	if err := s.Sender().WithdrawPut(runtime.PutResult{}); err != nil || !isReturned(runtime.PutResult{}) {
		t.Errorf("a put that never began: %v", err)
	}
}

// A put to a receiver that is not there ends, and lends nothing.
func TestPullToNobody(t *testing.T) {
	s := open(t, pullSenderConfig(t, "shm", effects.Addr{}))
	defer mustClose(t, s)
	pages := mustReserve(t, s, 1)
	defer mustRelease(t, pages)
	res, err := s.Sender().Put(within(t), runtime.Put{Peer: runtime.Peer{Host: "127.0.0.1", InitPort: 1, AllocPort: 1},
		Request: "r", Keys: keysOf("nobody", 1), Pages: pages})
	wantCode(t, err, effects.Unreachable)
	wantReturned(t, res)
}

// A mute plane says nothing of where it can be reached.
type mute struct{ plane.Plane }

func (mute) Blob() []byte { return nil }

// A receiver that finds no way to the pages that it is offered says so. The sender's own way to it is of no use there.
func TestPullFromPagesThatCannotBeReached(t *testing.T) {
	for name, opener := range map[string]plane.Opener{shm.Name: shm.Open, tcp.Name: tcp.Open} {
		t.Run(name, func(t *testing.T) {
			r := open(t, receiverConfig(t, name, nil))
			defer mustClose(t, r)
			s, err := runtime.Open(t.Context(), pullSenderConfig(t, name, effects.Addr{}),
				runtime.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil))), runtime.WithControl(zmq.Config{}.Opener()),
				runtime.WithPlane(name, func(ctx context.Context, env plane.Env) (plane.Plane, error) {
					p, err := opener(ctx, env)
					return mute{p}, err
				}), audit(t, true))
			if err != nil {
				t.Fatal(err)
			}
			defer mustClose(t, s)
			pages := mustReserve(t, s, 2)
			defer mustRelease(t, pages)
			res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keysOf("far", 2),
				Pages: pages})
			wantCode(t, err, effects.Unreachable)
			wantReturned(t, res)
			wantNothingHeld(t, r)
		})
	}
}
