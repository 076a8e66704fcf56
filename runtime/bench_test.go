package runtime_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// BenchmarkPush takes turns between whole pushes of 64 chunks of 1 MiB and pushes of as many pages over
// the bare plane, each out of 256 pages that no cache holds. A whole push lasts from the engine's Put to
// the chunks in the hands of the receiver's engine, handshake done, both nodes in this process; the bare
// one from the grant to the initiator's completion.
func BenchmarkPush(b *testing.B) { benchWhole(b, false) }

// BenchmarkPull is the same for eager pulls and bare reads. When the pages are the sender's engine's again is not in
// it.
func BenchmarkPull(b *testing.B) { benchWhole(b, true) }

func benchWhole(b *testing.B, pull bool) {
	for _, p := range []struct {
		name string
		open plane.Opener
	}{{shm.Name, shm.Open}, {tcp.Name, tcp.Open}} {
		b.Run(p.name, func(b *testing.B) {
			f, sc := planetest.NewBatchMover(b, p.open), senderConfig(b, p.name, effects.Addr{})
			bare := f.PushBatch
			if pull {
				bare, sc = f.ReadBatch, pullSenderConfig(b, p.name, effects.Addr{})
			}
			w := newWhole(b, sc, receiverConfig(b, p.name, nil))
			t := planetest.TimeAlternatives(b, []planetest.Alternative{
				{Name: "whole", Move: func(rng *rand.Rand) time.Duration { return w.move(b, rng) }},
				{Name: "bare", Move: func(rng *rand.Rand) time.Duration { return bare(b, rng) }},
			})
			for _, name := range []string{"whole", "bare"} {
				b.ReportMetric(float64(wholeChunks*wholeChunkBytes)/t.Median(name)/1e9, name+":GB/s")
				b.ReportMetric(t.Cores(name), name+":cores")
			}
			b.ReportMetric(t.Median("whole")*1e3, "whole:ms")
			b.ReportMetric(t.Ratio("whole", "bare"), "whole:x-bare")
		})
	}
}

const (
	wholeChunks     = 64
	wholeChunkBytes = 1 << 20
	wholeBatches    = 4 // of which one is drawn each time
)

// A whole is a sender with chunks and a receiver that takes them, by push or by pull.
type whole struct {
	sender, receiver *runtime.Node
	batches          []*runtime.Pages
	peer             runtime.Peer
	round            int
}

func newWhole(b *testing.B, sc, rc *config.Config) *whole {
	layout := protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: mustDtype(b, "bfloat16"),
		Shape: protocol.Shape{Dims: [4]uint32{2, 4, 256, 256}, N: 4}}
	if n, err := layout.PageBytes(); err != nil || n != wholeChunkBytes {
		b.Fatalf("chunks of %d bytes, %v", n, err)
	}
	rc.ChunkTokens, sc.ChunkTokens = layout.TokenCount(), layout.TokenCount()
	rc.BufferBytes, sc.BufferBytes = wholeBatches*wholeChunks*wholeChunkBytes, wholeBatches*wholeChunks*wholeChunkBytes
	for _, cfg := range []interface {
		SetLayout(protocol.Layout) error
	}{rc, sc} {
		if err := cfg.SetLayout(layout); err != nil {
			b.Fatal(err)
		}
	}
	w := &whole{sender: open(b, sc), receiver: open(b, rc)}
	b.Cleanup(func() {
		for _, pages := range w.batches {
			mustRelease(b, pages)
		}
		mustClose(b, w.sender)
		mustClose(b, w.receiver)
	})
	for range wholeBatches {
		pages := mustReserve(b, w.sender, wholeChunks)
		w.batches = append(w.batches, pages)
		for i := range wholeChunks {
			host, err := pages.Bytes(i)
			if err != nil {
				b.Fatal(err)
			}
			for j := range host {
				host[j] = byte(i) // Pages that were never written are no memory yet.
			}
		}
	}
	w.peer = peerOf(w.receiver)
	return w
}

// move moves one batch; the receiver's pages go back to its pool after the time was taken.
func (w *whole) move(b *testing.B, rng *rand.Rand) time.Duration {
	ctx := b.Context()
	w.round++
	keys, pages := keysOf(fmt.Sprintf("bench-%d", w.round), wholeChunks), w.batches[rng.IntN(len(w.batches))]
	begin := time.Now()
	res, err := w.sender.Sender().Put(ctx, runtime.Put{Peer: w.peer, Request: keys[0], Keys: keys, Pages: pages,
		Last: true})
	if err != nil {
		b.Fatal(err)
	}
	got, err := w.receiver.Receiver().Get(ctx, runtime.Get{Request: keys[0], Keys: keys})
	taken := time.Since(begin)
	if err != nil || got.Len() != wholeChunks {
		b.Fatalf("%v, %v", got, err)
	}
	if err := got.Release(ctx); err != nil {
		b.Fatal(err)
	}
	wantReturned(b, res)
	return taken
}

func mustDtype(tb testing.TB, name string) protocol.Dtype {
	tb.Helper()
	d, ok := protocol.ParseDtype([]byte(name))
	if !ok {
		tb.Fatalf("no dtype %q", name)
	}
	return d
}
