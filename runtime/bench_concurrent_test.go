package runtime_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/plane/shm"
)

const (
	manyPuts   = 64
	putChunks  = 8
	putBytes   = 16 << 10 // of a chunk
	manyPeers  = 32
	concurrent = manyPuts * putChunks
)

// BenchmarkConcurrent takes turns between 64 puts at once to one peer and to 32, each of 8 chunks of 16 KiB, from one
// sender in this process, handshakes done. A round lasts from the first Put to the last one's outcome. With a window
// the puts to one peer do not wait for each other's answers.
func BenchmarkConcurrent(b *testing.B) {
	for _, window := range []uint32{1, 16} {
		b.Run(fmt.Sprintf("window=%d", window), func(b *testing.B) {
			c := newConcurrent(b, window)
			one, many := []time.Duration{}, []time.Duration{}
			c.round(b, c.receivers[:1])
			c.round(b, c.receivers[1:])
			for b.Loop() {
				one = append(one, c.round(b, c.receivers[:1]))
				many = append(many, c.round(b, c.receivers[1:]))
			}
			middle := func(all []time.Duration) float64 {
				slices.SortFunc(all, func(x, y time.Duration) int { return cmp.Compare(x, y) })
				return all[len(all)/2].Seconds()
			}
			b.ReportMetric(0, "ns/op") // A round means nothing by itself.
			b.ReportMetric(middle(one)*1e3, "one-peer-ms")
			b.ReportMetric(middle(many)*1e3, "32-peers-ms")
			b.ReportMetric(middle(many)/middle(one), "ratio")
		})
	}
}

// A fan is a sender with pages for all puts of a round, and the receivers: the first one for all, then 32 for two each.
type fan struct {
	sender    *runtime.Node
	receivers []*runtime.Node
	pages     []*runtime.Pages
	rounds    int
}

func newConcurrent(b *testing.B, window uint32) *fan {
	layout := protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: mustDtype(b, "bfloat16"),
		Shape: protocol.Shape{Dims: [4]uint32{2, 1, 256, 16}, N: 4}}
	sc := senderConfig(b, shm.Name, effects.Addr{})
	sc.ChunkTokens, sc.BufferBytes, sc.Machine.Window = layout.TokenCount(), concurrent*putBytes, uint16(window)
	if err := sc.SetLayout(layout); err != nil {
		b.Fatal(err)
	}
	f := &fan{sender: open(b, sc)}
	for i := range 1 + manyPeers {
		rc := receiverConfig(b, shm.Name, nil)
		rc.ChunkTokens, rc.BufferBytes, rc.Machine.Window = layout.TokenCount(), concurrent*putBytes, uint16(window)
		if i > 0 {
			rc.BufferBytes = 2 * concurrent * putBytes / manyPeers
		}
		if err := rc.SetLayout(layout); err != nil {
			b.Fatal(err)
		}
		f.receivers = append(f.receivers, open(b, rc))
	}
	for range manyPuts {
		f.pages = append(f.pages, mustReserve(b, f.sender, putChunks))
	}
	b.Cleanup(func() {
		for _, pages := range f.pages {
			mustRelease(b, pages)
		}
		mustClose(b, f.sender)
		for _, r := range f.receivers {
			mustClose(b, r)
		}
	})
	return f
}

// round puts all batches at once, to these peers in turn. What arrived goes back to the pools after the time was taken.
func (f *fan) round(b *testing.B, to []*runtime.Node) time.Duration {
	f.rounds++
	keys := make([][]string, manyPuts)
	for i := range keys {
		keys[i] = keysOf(fmt.Sprintf("round-%d-%d", f.rounds, i), putChunks)
	}
	var all sync.WaitGroup
	begin := time.Now()
	for i := range manyPuts {
		all.Go(func() {
			_, err := f.sender.Sender().Put(b.Context(), runtime.Put{Peer: peerOf(to[i%len(to)]), Request: keys[i][0],
				Keys: keys[i], Pages: f.pages[i], Last: true})
			if err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	taken := time.Since(begin)
	for i := range manyPuts {
		got, err := to[i%len(to)].Receiver().Get(b.Context(), runtime.Get{Request: keys[i][0], Keys: keys[i]})
		if err != nil || got.Len() != putChunks {
			b.Fatalf("%v, %v", got, err)
		}
		if err := got.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	return taken
}
