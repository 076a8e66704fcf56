//go:build cgo && linux

package runtime_test

import (
	"context"
	"regexp"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/runtime"
)

// fetchSituations are what a receiver says whose fetch loses its sender, which is a process of its own. Logs are not
// told: what else is tried meanwhile, and so is logged, is a matter of time.
var fetchSituations = []situation{
	{"a fetch whose sender is killed", effects.PeerLost, func(x *transcript) {
		r := opened(x.T, delayedConfig(x, "shm", 2))
		p, keys := x.startOffers(r)
		x.fetchUntil(r, keys, func(ctx context.Context) {
			p.Kill()
			<-ctx.Done() // The loss of the link ends the fetch: it needs the sender still.
		})
		x.replaceText("read is peer_lost", "data plane is gone") // Chance says which is told first, the link's end or the read's.
	}},
	{"a fetch of what a sender offered that has started again", effects.NotFound, func(x *transcript) {
		r := opened(x.T, delayedConfig(x, "shm", 2))
		p, keys := x.startOffers(r)
		p.Kill()
		waitFor(x, r, "the end of its offers", hasNoOffers)
		next, _ := startNode(x, order{Role: "sender", Channel: "shm", TTL: limit})
		x.fetchUntil(r, keys, nil)
		next.closeNode()
	}},
	{"a fetch of what its sender takes back", effects.Withdrawn, func(x *transcript) {
		s, r := opened(x.T, pullSenderConfig(x, "shm", effects.Addr{})), opened(x.T, delayedConfig(x, "shm", 2))
		keys := keysOf("told", 6)
		pages := mustReserve(x, s, len(keys))
		fill(x.T, pages, keys)
		res, err := s.Sender().Put(within(x), runtime.Put{Peer: peerOf(r), Request: "r", Keys: keys, Pages: pages})
		if err != nil {
			x.Fatal(err)
		}
		x.fetchUntil(r, keys, func(context.Context) {
			if err := s.Sender().WithdrawPut(res); err != nil {
				x.Error(err)
			}
			waitFor(x, s, "the end of the loan", func(s rank.Stats) bool { return s.PagesLeased == 0 })
		})
		x.replaceText("read is withdrawn", "offer is taken back, or over,") // Chance says which is told first.
		mustRelease(x, pages)
	}},
}

// startOffers has a sender that is a process of its own offer six chunks.
func (x *transcript) startOffers(r *runtime.Node) (*process, []string) {
	x.Helper()
	p, _ := startNode(x, order{Role: "sender", Channel: "shm", TTL: limit})
	keys := keysOf("told", 6)
	if w := p.perform(order{Op: "put", Peer: peerOf(r), Keys: keys}); w.Code != effects.OK {
		x.Fatalf("put: %v", w.Code)
	}
	return p, keys
}

// aPort is one that the system has chosen.
var aPort = regexp.MustCompile(`127\.0\.0\.1:[0-9]{5}`)

// fetchUntil fetches, does something when the engine has the second chunk, and tells how that ends.
func (x *transcript) fetchUntil(r *runtime.Node, keys []string, then func(context.Context)) {
	x.Helper()
	patience := limit
	if then == nil {
		patience = time.Millisecond // There is nothing to wait for.
	}
	_, err := r.Receiver().Fetch(within(x), runtime.Fetch{Request: "r", Keys: keys, Timeout: patience,
		Scatter: func(ctx context.Context, first int, _ [][]byte) error {
			if first == 1 && then != nil {
				then(ctx)
			}
			return nil
		}})
	if err == nil {
		x.Error("the fetch ended well")
		return
	}
	if at := aPort.FindString(err.Error()); at != "" {
		x.replaceText(at, "127.0.0.1:7500")
	}
	x.addError(err)
}
