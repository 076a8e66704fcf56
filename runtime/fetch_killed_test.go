package runtime_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
)

// eachPlane runs a test for each plane, both at a time: they mostly wait.
func eachPlane(t *testing.T, test func(*testing.T, string)) {
	for _, channel := range []string{"shm", "tcp"} {
		t.Run(channel, func(t *testing.T) {
			t.Parallel()
			test(t, channel)
		})
	}
}

// hasNoOffers says that a receiver has given up all offers, and reads none.
func hasNoOffers(s rank.Stats) bool { return s.Offers+s.Locations+s.Fetches+s.Staged == 0 }

// A sender dies with its offers kept. They are missed at once, nothing of them is held, and what the sender offers
// in its next life, at the same address, is had.
func TestFetchFromADeadSender(t *testing.T) {
	eachPlane(t, func(t *testing.T, channel string) {
		r := opened(t, delayedConfig(t, channel, 2))
		o := order{Role: "sender", Channel: channel, TTL: limit, Peer: reservedPeer(t)}
		p, _ := startNode(t, o)
		keys := keysOf("dies", 6)
		if w := p.perform(order{Op: "put", Peer: peerOf(r), Keys: keys}); w.Code != effects.OK {
			t.Fatalf("put: %v", w.Code)
		}
		wantHits(t, r, keys, 6)
		p.Kill()
		waitFor(t, r, "the end of its offers", hasNoOffers)
		wantHits(t, r, keys, 0)
		_, err := r.Receiver().Fetch(within(t), runtime.Fetch{Request: "r", Keys: keys, Scatter: failingScatter(t),
			Timeout: time.Millisecond})
		wantCode(t, err, effects.NotFound)
		wantNoOffers(t, r)

		t.Log("# its next life offers chunks of the same keys")
		next, _ := startNode(t, o)
		if w := next.perform(order{Op: "put", Peer: peerOf(r), Keys: keys}); w.Code != effects.OK {
			t.Fatalf("put: %v", w.Code)
		}
		mustFetch(t, r, "r", keys)
		next.perform(order{Op: "reclaim"})
		next.closeNode()
		waitFor(t, r, "the end of its offers", hasNoOffers)
		wantNoOffers(t, r)
	})
}

// A sender dies in the middle of a fetch. What the engine had taken by then is right, the rest is missed, and nothing
// is held.
func TestFetchWhoseSenderDies(t *testing.T) {
	eachPlane(t, func(t *testing.T, channel string) {
		r := opened(t, delayedConfig(t, channel, 2))
		p, _ := startNode(t, order{Role: "sender", Channel: channel, TTL: limit})
		keys := keysOf("dies", 6)
		if w := p.perform(order{Op: "put", Peer: peerOf(r), Keys: keys}); w.Code != effects.OK {
			t.Fatalf("put: %v", w.Code)
		}
		d := &device{tb: t, keys: keys}
		taken, err := r.Receiver().Fetch(within(t), runtime.Fetch{Request: "r", Keys: keys,
			Scatter: func(ctx context.Context, first int, chunks [][]byte) error {
				if first == 1 {
					p.Kill()
					<-ctx.Done() // The loss of the link ends the fetch: it needs the sender still.
				}
				return d.scatter(ctx, first, chunks)
			}})
		wantCode(t, err, effects.PeerLost)
		if taken != 2 {
			t.Errorf("the engine took %d chunks; it had the first two", taken)
		}
		waitFor(t, r, "the end of its offers", hasNoOffers)
		wantHits(t, r, keys, 0)
		wantNoOffers(t, r)
	})
}

// A receiver dies with offers kept: their sender has its memory back by time, and the next receiver is served.
func TestReceiverDiesWithOffersKept(t *testing.T) {
	eachPlane(t, func(t *testing.T, channel string) {
		s := briefSender(t, channel)
		p, peer := startNode(t, order{Role: "receiver", Channel: channel, Delay: true})
		res, pages, _ := offerUntilKept(t, s, peer)
		p.Kill()
		wantReturned(t, res)
		mustRelease(t, pages)
		waitFor(t, s, "the end of the loan", func(s rank.Stats) bool { return s.PagesLeased+s.PagesQuarantined == 0 })
		mustClose(t, s)
	})
}

// offerUntilKept offers chunks until their receiver keeps them: where this machine is slow, their time may be over
// before.
func offerUntilKept(t *testing.T, s *runtime.Node, peer runtime.Peer) (runtime.PutResult, *runtime.Pages, []string) {
	t.Helper()
	ctx := within(t)
	for round := 0; ; round++ {
		keys := keysOf(fmt.Sprintf("kept%d", round), offerChunks)
		pages := mustReserve(t, s, offerChunks)
		fill(t, pages, keys)
		res, err := s.Sender().Put(ctx, runtime.Put{Peer: peer, Request: "r", Keys: keys, Pages: pages})
		if err == nil {
			return res, pages, keys
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		wantReturned(t, res)
		mustRelease(t, pages)
	}
}

// The sender is asked for more time while its offers are kept: they outlive their first time, and are had then.
func TestRenewalsKeepOffers(t *testing.T) {
	eachPlane(t, func(t *testing.T, channel string) {
		const ttl = 2 * briefly
		cfg := renewingSenderConfig(t, channel)
		m := &cfg.Machine
		m.PullTTL, m.ReadLeaseMax, m.LeaseGuard = effects.Duration(ttl), effects.Duration(limit), effects.Duration(ttl/8)
		s := opened(t, cfg)
		rc := delayedConfig(t, channel, 2)
		rc.Machine.LeaseGuard = effects.Duration(ttl / 8)
		r := opened(t, rc)
		ctx := within(t)
		for round := 0; ctx.Err() == nil; round++ {
			keys := keysOf(fmt.Sprintf("renewed%d", round), 3)
			pages := mustReserve(t, s, len(keys))
			fill(t, pages, keys)
			res, err := s.Sender().Put(ctx, runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages})
			begun := time.Now() // Not before the offer.
			kept := false
			if err == nil {
				waitFor(t, r, "the end of the offer's first time, or of the offer",
					func(s rank.Stats) bool { return s.Offers == 0 || time.Since(begun) > 2*ttl })
				_, err = r.Receiver().Fetch(ctx, runtime.Fetch{Request: "r", Keys: keys, Timeout: time.Second,
					Scatter: (&device{tb: t, keys: keys}).scatter})
				kept = err == nil && time.Since(begun) > 2*ttl
			}
			wantReturned(t, res)
			mustRelease(t, pages)
			if kept {
				return
			}
			t.Logf("round %d: the offer ended (%v): this machine was too slow to renew it", round, err)
		}
		t.Error("no offer outlived its first time")
	})
}

// Without renewals the time of an offer ends, and both ends know it by themselves.
func TestOffersEndByTime(t *testing.T) {
	eachPlane(t, func(t *testing.T, channel string) {
		s := briefSender(t, channel)
		rc := delayedConfig(t, channel, 2)
		rc.Machine.LeaseGuard = effects.Duration(briefly / 4)
		r := opened(t, rc)
		res, pages, keys := offerUntilKept(t, s, peerOf(r))
		waitFor(t, r, "the end of the offer", hasNoOffers)
		wantHits(t, r, keys, 0)
		wantReturned(t, res)
		mustRelease(t, pages)
		mustClose(t, s)
	})
}
