//go:build cgo && linux

package hccl_test

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// Measures what a push costs besides its bytes: a page of 64 bytes, from the machine's effect to its completion, with
// one push at a time and with 32 at once.
func BenchmarkPushOfNothing(b *testing.B) {
	for _, c := range []struct {
		name   string
		atOnce int
	}{{"one", 1}, {"32", 32}} {
		b.Run(c.name, func(b *testing.B) {
			r := hccltest.StartRig(b)
			r.RunCommand(b, "set delay_us=0")
			b.Cleanup(func() { r.RunCommand(b, "set delay_us=20") })
			p := planetest.NewLeasedPair(b, r.NodeMaker(hccltest.Options{}), pages, 64)
			var moves []planetest.Move
			for i := range c.atOnce {
				moves = append(moves, p.NewPush(b, i, 1))
			}
			corrs := make([]effects.Corr, len(moves))
			for b.Loop() {
				for i, m := range moves {
					corrs[i] = p.A.StartTransfer(m)
				}
				for _, corr := range corrs {
					if done := p.A.AwaitDone(b, corr); done.Code != effects.OK {
						b.Fatalf("ended as %s", done.Code)
					}
				}
			}
		})
	}
}
