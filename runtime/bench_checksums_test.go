//go:build cgo && linux

package runtime_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/shm"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
)

// BenchmarkChecksums takes turns between whole pushes with data.checksum: transfer at both ends and without: 64 chunks of
// 1 MiB out of 256 pages that no cache holds, and single chunks of 4 KiB, both as in BenchmarkPush. Both ends are in this
// process.
func BenchmarkChecksums(b *testing.B) {
	names := []string{"off", "transfer"}
	for _, channel := range []string{shm.Name, tcp.Name} {
		b.Run(channel+"/64x1MiB", func(b *testing.B) {
			var turns []planetest.Alternative
			for _, name := range names {
				sc, rc := senderConfig(b, channel, effects.Addr{}), receiverConfig(b, channel, nil)
				sc.Data.Checksums, rc.Data.Checksums = name == "transfer", name == "transfer"
				w := newWhole(b, sc, rc)
				turns = append(turns, planetest.Alternative{Name: name, Move: func(rng *rand.Rand) time.Duration { return w.move(b, rng) }})
			}
			t := planetest.TimeAlternatives(b, turns)
			for _, name := range names {
				b.ReportMetric(float64(wholeChunks*wholeChunkBytes)/t.Median(name)/1e9, name+":GB/s")
				b.ReportMetric(t.CPU(name)*1e3, name+":cpu-ms")
			}
			b.ReportMetric(t.Ratio("transfer", "off"), "transfer:x-off")
		})
		b.Run(channel+"/4KiB", func(b *testing.B) {
			layout := protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: mustDtype(b, "bfloat16"),
				Shape: protocol.Shape{Dims: [4]uint32{2, 1, 64, 16}, N: 4}}
			var turns []planetest.Alternative
			for _, name := range names {
				sc, rc := senderConfig(b, channel, effects.Addr{}), receiverConfig(b, channel, nil)
				sc.ChunkTokens, sc.BufferBytes = layout.TokenCount(), 64*4096
				rc.ChunkTokens, rc.BufferBytes = layout.TokenCount(), 64*4096
				if err := errors.Join(sc.SetLayout(layout), rc.SetLayout(layout)); err != nil {
					b.Fatal(err)
				}
				sc.Data.Checksums, rc.Data.Checksums = name == "transfer", name == "transfer"
				m := &many{sender: open(b, sc), receiver: open(b, rc)}
				m.pages = mustReserve(b, m.sender, 1)
				fill(b, m.pages, keysOf("small", 1))
				b.Cleanup(func() {
					mustRelease(b, m.pages)
					mustClose(b, m.sender)
					mustClose(b, m.receiver)
				})
				turns = append(turns, planetest.Alternative{Name: name, Move: func(rng *rand.Rand) time.Duration {
					return medianOf(func() time.Duration { return m.move(b, rng, 1) })
				}})
			}
			t := planetest.TimeAlternatives(b, turns)
			for _, name := range names {
				b.ReportMetric(t.Median(name)*1e6, name+":µs")
			}
			b.ReportMetric(t.Ratio("transfer", "off"), "transfer:x-off")
		})
	}
}
