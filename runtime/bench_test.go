package runtime_test

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime"
)

// BenchmarkPush is a whole push of 64 chunks of 1 MiB, from the engine's Put to the chunks in the hands of
// the receiver's engine and back to the pool: handshake done, one batch, both nodes in this process.
func BenchmarkPush(b *testing.B) {
	const chunks = 64
	layout := protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: mustDtype(b, "bfloat16"),
		Shape: protocol.Shape{Dims: [4]uint32{2, 4, 256, 256}, N: 4}}
	chunkBytes, err := layout.PageBytes()
	if err != nil {
		b.Fatal(err)
	}
	for _, channel := range []string{"shm", "tcp"} {
		b.Run(channel, func(b *testing.B) {
			rc, sc := receiverConfig(b, channel, nil), senderConfig(b, channel, effects.Addr{})
			for _, cfg := range []interface {
				SetLayout(protocol.Layout) error
			}{rc, sc} {
				rc.ChunkTokens, sc.ChunkTokens = layout.Tokens(), layout.Tokens()
				rc.BufferBytes, sc.BufferBytes = 2*chunks*chunkBytes, 2*chunks*chunkBytes
				if err := cfg.SetLayout(layout); err != nil {
					b.Fatal(err)
				}
			}
			r, s := open(b, rc), open(b, sc)
			defer mustClose(b, r)
			defer mustClose(b, s)
			pages := mustReserve(b, s, chunks)
			defer mustRelease(b, pages)
			for i := range chunks {
				host, err := pages.Host(i)
				if err != nil {
					b.Fatal(err)
				}
				clear(host) // Pages that were never touched are no memory yet.
			}
			peer, ctx, round := peerOf(r), b.Context(), 0
			b.SetBytes(int64(chunks * chunkBytes))
			b.ReportAllocs()
			for b.Loop() {
				round++
				keys := keysOf(fmt.Sprintf("bench-%d", round), chunks)
				if _, err := s.Sender().Put(ctx, runtime.Put{Peer: peer, Request: keys[0], Keys: keys, Pages: pages, Last: true}); err != nil {
					b.Fatal(err)
				}
				got, err := r.Receiver().Get(ctx, keys, 0)
				if err != nil || got.Len() != chunks {
					b.Fatalf("%v, %v", got, err)
				}
				if err := got.Release(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func mustDtype(tb testing.TB, name string) protocol.Dtype {
	tb.Helper()
	d, ok := protocol.ParseDtype([]byte(name))
	if !ok {
		tb.Fatalf("no dtype %q", name)
	}
	return d
}
