//go:build cgo

package runtime_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/runtime/config"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
	"github.com/kvferry/kvferry/runtime/plane/tcp"
	"github.com/kvferry/kvferry/runtime/secure/authority"
)

// BenchmarkSmallSecured takes turns between pushes of one chunk of 4 KiB over tcp of two nodes with security.mode off and
// of two nodes with strict, as BenchmarkSmall measures them. The median of each turn counts.
func BenchmarkSmallSecured(b *testing.B) {
	f := newFleet(b, string(authority.FleetPolicy("fleet")))
	layout := protocol.Layout{Format: protocol.FormatKV2LTD, Dtype: mustDtype(b, "bfloat16"),
		Shape: protocol.Shape{Dims: [4]uint32{2, 1, 64, 16}, N: 4}}
	pair := func(secured bool) planetest.Alternative {
		name := "off"
		sc, rc := senderConfig(b, tcp.Name, effects.Addr{}), receiverConfig(b, tcp.Name, nil)
		if secured {
			name, sc, rc = "strict", f.secured(sc, "prefill/1"), f.secured(rc, "decode/1")
		}
		for _, cfg := range []*config.Config{sc, rc} {
			cfg.ChunkTokens, cfg.BufferBytes = layout.TokenCount(), 64*4096
		}
		if err := errors.Join(sc.SetLayout(layout), rc.SetLayout(layout)); err != nil {
			b.Fatal(err)
		}
		m := &many{sender: open(b, sc), receiver: open(b, rc)}
		m.pages = mustReserve(b, m.sender, 1)
		fill(b, m.pages, keysOf("small", 1))
		b.Cleanup(func() {
			mustRelease(b, m.pages)
			mustClose(b, m.sender)
			mustClose(b, m.receiver)
		})
		return planetest.Alternative{Name: name, Move: func(rng *rand.Rand) time.Duration {
			return medianOf(func() time.Duration { return m.move(b, rng, 1) })
		}}
	}
	t := planetest.TimeAlternatives(b, []planetest.Alternative{pair(false), pair(true)})
	b.ReportMetric(t.Median("off")*1e6, "off-µs")
	b.ReportMetric(t.Median("strict")*1e6, "strict-µs")
	b.ReportMetric(t.CPU("strict")/t.CPU("off"), "cpu-ratio")
	b.ReportMetric(t.Ratio("strict", "off"), "ratio")
}
