package runtime_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

// A receiver that is a cache has what one request was sent for others too, and without being sent any: more than its
// pool holds in all, and what was read last of it. One that consumes has nothing of it any more.
func TestCacheKeepsWhatWasRead(t *testing.T) {
	for _, cache := range []bool{false, true} {
		t.Run(fmt.Sprintf("cache %v", cache), func(t *testing.T) {
			cfg := receiverConfig(t, shm.Name, nil) // 8 pages
			if cfg.Machine.Retention = store.Consume; cache {
				cfg.Machine.Retention = store.Cache
			}
			s, r := open(t, senderConfig(t, shm.Name, effects.Addr{})), open(t, cfg)
			defer mustClose(t, s)
			defer mustClose(t, r)
			for i := range 6 {
				request := fmt.Sprint("r", i)
				keys, pages := keysOf(request, 2), mustReserve(t, s, 2)
				fill(t, pages, keys)
				put := runtime.Put{Peer: peerOf(r), Request: request, Keys: keys, Pages: pages, Last: true}
				if _, err := s.Sender().Put(within(t), put); err != nil {
					t.Fatal(err)
				}
				mustRelease(t, pages)
				got, err := r.Receiver().Get(within(t), runtime.Get{Request: request, Keys: keys})
				if err != nil {
					t.Fatal(err)
				}
				wantContent(t, got, keys, pageBytes)
				mustRelease(t, got)
			}
			for i := range 6 {
				keys := keysOf(fmt.Sprint("r", i), 2)
				got, err := r.Receiver().Get(within(t), runtime.Get{Request: "another", Keys: keys})
				if here := cache && i >= 2; here != (err == nil) {
					t.Fatalf("batch %d: %v; want it here: %v", i, err, here)
				}
				var e *runtime.Error
				if err == nil {
					wantContent(t, got, keys, pageBytes)
					mustRelease(t, got)
				} else if !errors.As(err, &e) || e.Code != effects.NotFound {
					t.Errorf("batch %d: %v; want not found", i, err)
				}
			}
		})
	}
}
