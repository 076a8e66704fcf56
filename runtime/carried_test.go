package runtime_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// What a put has goes with the question for its pages up to what both ends have for that, and by the plane beyond. Either
// way it arrives byte for byte.
func TestSmallPutsGoWithTheirQuestion(t *testing.T) {
	const pages = 3
	for _, channel := range []string{shm.Name, tcp.Name} {
		for _, c := range []struct{ ours, theirs, carried uint64 }{
			{pages * pageBytes, pages * pageBytes, pages},
			{pages*pageBytes - 1, pages * pageBytes, pages - 1},
			{pages * pageBytes, pageBytes, 1},
			{0, pages * pageBytes, 0},
			{pages * pageBytes, 0, 0},
		} {
			t.Run(fmt.Sprintf("%s/%d-%d", channel, c.ours, c.theirs), func(t *testing.T) {
				var stored atomic.Int64
				rc, sc := receiverConfig(t, channel, nil), senderConfig(t, channel, effects.Addr{})
				rc.Machine.Carries, sc.Machine.Carries = uint32(c.theirs), uint32(c.ours)
				r, s := open(t, rc), open(t, sc)
				defer mustClose(t, r)
				defer mustClose(t, s)
				r.Watch(func(effects.Event) {}, func(e effects.Effect) {
					if _, ok := e.(*effects.Store); ok {
						stored.Add(1)
					}
				})
				for n := 1; n <= pages; n++ {
					stored.Store(0)
					keys, from := keysOf(fmt.Sprint("of", n), n), mustReserve(t, s, n)
					fill(t, from, keys)
					if _, err := s.Sender().Put(within(t), runtime.Put{Peer: peerOf(r), Keys: keys, Pages: from}); err != nil {
						t.Fatal(err)
					}
					mustRelease(t, from)
					got, err := r.Receiver().Get(within(t), runtime.Get{Keys: keys})
					if err != nil {
						t.Fatal(err)
					}
					wantContent(t, got, keys, pageBytes)
					mustRelease(t, got)
					if carried := uint64(stored.Load()); carried != 0 != (uint64(n) <= c.carried) || carried != 0 && carried != uint64(n) {
						t.Errorf("%d of %d pages came with their question", carried, n)
					}
				}
			})
		}
	}
}
