//go:build cgo

package runtime_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
)

// A command whose time is over ends with one code, whether its patience said so, or its context's deadline, which is
// the earlier of the two; and one that its caller takes back with another. No two runs differ.
func TestTimeIsOverInOneWay(t *testing.T) {
	r, s := open(t, receiverConfig(t, "shm", nil)), open(t, senderConfig(t, "shm", effects.Addr{}))
	defer mustClose(t, r)
	defer mustClose(t, s)
	pages := mustReserve(t, s, int(s.Stats().PagesTotal))
	defer mustRelease(t, pages)
	silent := newSilentPeer(t).Peer
	for _, c := range []struct {
		name string
		call func(ctx context.Context, patience time.Duration) error
		over effects.Code
	}{
		{"put", func(ctx context.Context, patience time.Duration) error {
			_, err := s.Sender().Put(ctx, runtime.Put{Peer: silent, Keys: keysOf("nobody", 1), Pages: pages, Timeout: patience})
			return err
		}, effects.Expired},
		{"reserve", func(ctx context.Context, _ time.Duration) error {
			_, err := s.Sender().Reserve(ctx, 1)
			return err
		}, effects.NoMemory},
		{"get", func(ctx context.Context, patience time.Duration) error {
			_, err := r.Receiver().Get(ctx, runtime.Get{Keys: keysOf("none", 1), Timeout: max(patience, time.Minute)})
			return err
		}, effects.NotFound},
		{"fetch", func(ctx context.Context, patience time.Duration) error {
			_, err := r.Receiver().Fetch(ctx, runtime.Fetch{Keys: keysOf("none", 1), Timeout: patience, Scatter: failingScatter(t)})
			return err
		}, effects.NotFound},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range 20 {
				for _, patience := range []time.Duration{0, 5 * time.Millisecond, time.Hour} {
					if c.name == "reserve" && patience != 0 || c.name == "get" && patience == 5*time.Millisecond {
						continue // It has none of its own, or the test waits for less.
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i%4)*time.Millisecond)
					err := c.call(ctx, patience)
					cancel()
					if runtime.CodeOf(err) != c.over || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
						t.Fatalf("by the context's deadline, with patience %v: %v; want %s and a deadline", patience, err, c.over)
					}
				}
				ctx, cancel := context.WithCancel(t.Context())
				stop := time.AfterFunc(time.Duration(i%4)*time.Millisecond, cancel)
				err := c.call(ctx, time.Hour)
				stop.Stop()
				cancel()
				if c.name == "fetch" && runtime.CodeOf(err) == effects.NotFound {
					t.Fatal("a fetch that was taken back waited for its time")
				}
				if runtime.CodeOf(err) != effects.Cancelled || !errors.Is(err, context.Canceled) ||
					errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("taken back: %v; want cancelled", err)
				}
			}
		})
	}
}
