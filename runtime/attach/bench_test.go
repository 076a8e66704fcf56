package attach

import (
	"context"
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
)

// BenchmarkAttach is how long it takes to attach, map the pool and detach.
func BenchmarkAttach(b *testing.B) {
	r := newRig(b, "sender")
	for b.Loop() {
		c := attach(b, r.s.Path())
		c.ok(protocol.CallDetach, protocol.EngineCall{})
		c.free(b)
	}
}

// BenchmarkRound reserves pages at a prefill node, puts them into a decode node over shm, gets them there and gives
// both back: through agents, and embedded, in the same run. The bytes are not touched, so what differs is the calls.
func BenchmarkRound(b *testing.B) {
	for _, size := range []struct {
		name    string
		kib, of int // of a page, and how many
		pool    string
	}{{"4KiB", 4, 1, "1MiB"}, {"64MiB", 1024, 64, "256MiB"}} {
		layout := fmt.Sprintf("layout: {num_layers: 2, num_kv_heads: 1, head_size: %d, dtype: bfloat16}", size.kib*8)
		from, to := newRigOf(b, "sender", size.pool, layout), newRigOf(b, "receiver", size.pool, layout)
		names := keys(size.of)
		var last int
		b.Run(size.name+"/attached", func(b *testing.B) {
			p, d := attach(b, from.s.Path()), attach(b, to.s.Path())
			b.SetBytes(int64(size.kib * size.of << 10))
			for b.Loop() {
				last++
				request := fmt.Appendf(nil, "r%d", last)
				got := p.ok(protocol.CallReserve, protocol.EngineCall{Count: uint32(size.of), Done: p.done()})
				p.ok(protocol.CallPut, to.peer(protocol.EngineCall{Target: got.ID, Keys: names, Request: request, Last: true}))
				here := d.ok(protocol.CallGet, protocol.EngineCall{Keys: names, Request: request, PatienceNS: patience,
					Done: d.done()})
				d.ok(protocol.CallRelease, protocol.EngineCall{Target: here.ID})
				p.ok(protocol.CallRelease, protocol.EngineCall{Target: got.ID})
			}
			for _, c := range []*client{p, d} {
				c.ok(protocol.CallDetach, protocol.EngineCall{})
				c.free(b)
			}
		})
		b.Run(size.name+"/embedded", func(b *testing.B) {
			ctx, texts := context.Background(), toStrings(names)
			call := to.peer(protocol.EngineCall{})
			peer := runtime.Peer{Host: string(call.Host), InitPort: uint16(call.InitPort), AllocPort: uint16(call.AllocPort)}
			b.SetBytes(int64(size.kib * size.of << 10))
			for b.Loop() {
				last++
				request := fmt.Sprintf("r%d", last)
				got, err := from.node.Sender().Reserve(ctx, size.of)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := from.node.Sender().Put(ctx, runtime.Put{Peer: peer, Keys: texts, Request: request, Pages: got,
					Last: true}); err != nil {
					b.Fatal(err)
				}
				here, err := to.node.Receiver().Get(ctx, runtime.Get{Keys: texts, Request: request, Timeout: 1 << 34})
				if err != nil {
					b.Fatal(err)
				}
				if err := here.Release(ctx); err != nil {
					b.Fatal(err)
				}
				if err := got.Release(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
