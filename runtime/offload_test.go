package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
)

// offloadSenderConfig has pages that the engine fills, and others that are offered.
func offloadSenderConfig(tb testing.TB, channel string, pages, host int) *config.Config {
	cfg := parse(tb, "sender", channel, pages,
		fmt.Sprintf("pd_skip_proxy_notification: true\npd_pull_mode: true\npd_peer_host: 127.0.0.1\n"+
			"pd_pull_done_port: 1\npd_use_cpu_offload: true\npd_cpu_buffer_size: %d\npd_pull_backpressure_reserve_pct: 0\n",
			host*pageBytes))
	cfg.Pull.DonePorts[0] = 0
	return cfg
}

// putting is a Put that goes on while the test does.
type putting struct {
	keys []string
	done chan error
}

func startPut(tb testing.TB, ctx context.Context, s *runtime.Node, p runtime.Put) putting {
	tb.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := s.Sender().Put(ctx, p)
		done <- err
	}()
	return putting{p.Keys, done}
}

// returnsOf tells of each Return that a node's machine asks for.
func returnsOf(n *runtime.Node) <-chan effects.Ticket {
	returns := make(chan effects.Ticket, 64)
	n.Watch(func(effects.Event) {}, func(e effects.Effect) {
		if e, ok := e.(*effects.Return); ok {
			returns <- e.Ticket
		}
	})
	return returns
}

func next[T any](tb testing.TB, from <-chan T, what string) T {
	tb.Helper()
	select {
	case v := <-from:
		return v
	case <-within(tb).Done():
		tb.Fatalf("%s never came", what)
		panic("unreachable")
	}
}

// While nobody answers, the engine fills its three pages again and again: four times what they hold waits in host
// memory. Then a receiver comes, and reads everything that was ever put.
func TestOffloadFreesTheEnginesMemory(t *testing.T) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			const rounds = 4
			at := newLaterPeer(t)
			s := open(t, offloadSenderConfig(t, channel, 3, 3*rounds))
			returns := returnsOf(s)
			var puts []putting
			for i := range rounds {
				keys := keysOf(fmt.Sprint("round", i), 3)
				pages := mustReserve(t, s, 3)
				fill(t, pages, keys)
				puts = append(puts, startPut(t, within(t), s, runtime.Put{Peer: at.Peer, Request: fmt.Sprint("r", i), Keys: keys,
					Pages: pages, Last: true, LastChunkTokens: 5}))
				next(t, returns, "the memory of a put")
				mustRelease(t, pages)
			}
			if got := s.Stats(); got.PagesFree != 3 || got.HostFree != 0 || got.Puts != rounds {
				t.Fatalf("with nobody there: %+v", got)
			}
			cfg := parse(t, "receiver", channel, 3*rounds,
				"pd_peer_host: 127.0.0.1\npd_peer_init_port: 1\npd_peer_alloc_port: 2\n")
			cfg.InitPorts[0], cfg.AllocPorts[0] = 0, 0
			r := open(t, cfg)
			at.open(r)
			for i, p := range puts {
				if err := next(t, p.done, "the end of a put"); err != nil {
					t.Fatalf("put %d: %v", i, err)
				}
				got, err := r.Receiver().Get(within(t), runtime.Get{Request: fmt.Sprint("r", i), Keys: p.keys, Patience: limit})
				if err != nil {
					t.Fatal(err)
				}
				wantContent(t, got, p.keys, pageBytes*5/16)
				mustRelease(t, got)
			}
			waitFor(t, s, "the end of the offers", func(s rank.Stats) bool { return s.HostFree == s.HostTotal && s.Puts == 0 })
			mustClose(t, r)
			mustClose(t, s)
		})
	}
}

// A put beyond the host pool waits for it, and keeps its pages; taken back it gives them, and its place, to the next.
func TestOffloadWaitsForHostMemory(t *testing.T) {
	at := newLaterPeer(t)
	s := open(t, offloadSenderConfig(t, "shm", 6, 2))
	returns := returnsOf(s)
	pages := mustReserve(t, s, 6)
	keys := keysOf("wait", 6)
	fill(t, pages, keys)
	put := func(ctx context.Context, first, n int) putting {
		return startPut(t, ctx, s, runtime.Put{Peer: at.Peer, Keys: keys[first : first+n], Pages: pages, First: first})
	}
	first := put(within(t), 0, 2)
	next(t, returns, "the memory of the first put")
	ctx, giveUp := context.WithCancel(within(t))
	second := put(ctx, 2, 2)
	waitFor(t, s, "the second put", func(s rank.Stats) bool { return s.Puts == 2 })
	giveUp()
	if err := next(t, second.done, "the end of the second put"); runtime.CodeOf(err) != effects.Cancelled {
		t.Errorf("taken back while it waits: %v", err)
	}
	third := put(within(t), 4, 2)
	waitFor(t, s, "the third put", func(s rank.Stats) bool { return s.Puts == 2 })
	r := open(t, receiverConfig(t, "shm", nil))
	at.open(r)
	for _, p := range []putting{first, third} {
		if err := next(t, p.done, "the end of a put"); err != nil {
			t.Fatal(err)
		}
		got, err := r.Receiver().Get(within(t), runtime.Get{Request: "any", Keys: p.keys, Patience: limit})
		if err != nil {
			t.Fatal(err)
		}
		wantContent(t, got, p.keys, pageBytes)
		mustRelease(t, got)
	}
	mustRelease(t, pages)
	mustClose(t, r)
	mustClose(t, s)
}

// A process that ends while its offers stand waits for nobody: what was copied is its own.
func TestOffloadCloses(t *testing.T) {
	at := newLaterPeer(t)
	cfg := offloadSenderConfig(t, "shm", 2, 2)
	s := open(t, cfg)
	returns := returnsOf(s)
	pages := mustReserve(t, s, 2)
	keys := keysOf("close", 2)
	fill(t, pages, keys)
	ctx, cancel := context.WithCancel(within(t))
	p := startPut(t, ctx, s, runtime.Put{Peer: at.Peer, Keys: keys, Pages: pages})
	next(t, returns, "the memory of the put")
	mustRelease(t, pages)
	if err := pages.Release(within(t)); runtime.CodeOf(err) != effects.NotFound {
		t.Errorf("released twice: %v", err)
	}
	cancel()
	if err := next(t, p.done, "the end of the put"); !errors.Is(err, context.Canceled) {
		t.Errorf("the put ended with %v", err)
	}
	mustClose(t, s)
}

// What a receiver keeps for later is in host memory alone, and can be taken back from there.
func TestOffloadIsTakenBack(t *testing.T) {
	s, r := open(t, offloadSenderConfig(t, "shm", 2, 2)), open(t, delayedConfig(t, "shm", 2))
	pages := mustReserve(t, s, 2)
	keys := keysOf("back", 2)
	fill(t, pages, keys)
	res, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Keys: keys, Pages: pages})
	if err != nil || !isReturned(res) {
		t.Fatalf("%+v, %v, memory returned: %v", res, err, isReturned(res))
	}
	mustRelease(t, pages)
	if got := s.Stats(); got.PagesLent != 2 || got.HostFree != 0 || got.PagesFree != 2 {
		t.Fatalf("while the offer stands: %+v", got)
	}
	if err := s.Sender().TakeBack(res); err != nil {
		t.Fatal(err)
	}
	waitFor(t, s, "the end of the offer", func(s rank.Stats) bool { return s.HostFree == 2 && s.Puts == 0 })
	if err := s.Sender().TakeBack(res); err != nil {
		t.Errorf("taken back twice: %v", err)
	}
	mustClose(t, r)
	mustClose(t, s)
}
