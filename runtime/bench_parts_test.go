package runtime_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// BenchmarkPuts takes turns between whole pushes of 1 to 16,384 chunks of 16 KiB and pushes of as many pages over the
// bare plane, out of 256 MiB at each end. A whole push lasts from the engine's Put to the chunks in the hands of the
// receiver's engine, as in BenchmarkPush. What is beyond limits.keys_per_batch goes in parts; the bare plane has pushes
// as large.
func BenchmarkPuts(b *testing.B) {
	const most = 16384
	for _, p := range []struct {
		name string
		open plane.Opener
	}{{shm.Name, shm.Open}, {tcp.Name, tcp.Open}} {
		sc, rc := senderConfig(b, p.name, effects.Addr{}), receiverConfig(b, p.name, nil)
		for _, cfg := range []*uint64{&sc.BufferBytes, &rc.BufferBytes} {
			*cfg = most * pageBytes
		}
		if err := sc.SetLayout(sc.Layout); err != nil {
			b.Fatal(err)
		}
		if err := rc.SetLayout(rc.Layout); err != nil {
			b.Fatal(err)
		}
		m := &many{sender: open(b, sc), receiver: open(b, rc)}
		m.pages = mustReserve(b, m.sender, most)
		fill(b, m.pages, keysOf("filled", most))
		for _, n := range []int{1, 64, 1024, 4096, most} {
			b.Run(fmt.Sprintf("%s/%d", p.name, n), func(b *testing.B) {
				f := planetest.NewBatchMoverOf(b, p.open, most, pageBytes, n)
				t := planetest.TimeAlternatives(b, []planetest.Alternative{
					{Name: "whole", Move: func(rng *rand.Rand) time.Duration { return m.move(b, rng, n) }},
					{Name: "bare", Move: func(rng *rand.Rand) time.Duration { return f.PushBatch(b, rng) }},
				})
				for _, name := range []string{"whole", "bare"} {
					b.ReportMetric(t.Median(name)*1e9/float64(n), name+":ns/chunk")
					b.ReportMetric(t.CPU(name)*1e9/float64(n), name+":cpu-ns/chunk")
				}
				b.ReportMetric(t.Ratio("whole", "bare"), "whole:x-bare")
			})
		}
		mustRelease(b, m.pages)
		mustClose(b, m.sender)
		mustClose(b, m.receiver)
	}
}

// many is a sender whose pages are full, and a receiver that takes some of them.
type many struct {
	sender, receiver *runtime.Node
	pages            *runtime.Pages
	round            int
}

func (m *many) move(b *testing.B, rng *rand.Rand, n int) time.Duration {
	ctx := b.Context()
	m.round++
	name := fmt.Sprintf("many-%d", m.round)
	keys := keysOf(name, n)
	begin := time.Now()
	_, err := m.sender.Sender().Put(ctx, runtime.Put{Peer: peerOf(m.receiver), Request: name, Keys: keys, Pages: m.pages,
		First: rng.IntN(m.pages.Len() - n + 1), Last: true})
	if err != nil {
		b.Fatal(err)
	}
	got, err := m.receiver.Receiver().Get(ctx, runtime.Get{Request: name, Keys: keys})
	taken := time.Since(begin)
	if err != nil || got.Len() != n {
		b.Fatalf("%v, %v", got, err)
	}
	mustRelease(b, got)
	return taken
}
