//go:build cgo && linux

package npu

import (
	"fmt"
	"testing"

	"github.com/kvferry/kvferry/effects"
)

// BenchmarkCopy measures a Copy from the machine's effect to its completion, with few bytes: the cost of a copy besides
// moving the bytes.
func BenchmarkCopy(b *testing.B) {
	for _, pages := range []uint32{1, testPages} {
		b.Run(fmt.Sprint(pages), func(b *testing.B) {
			r, done := newRig(b), newEventBox()
			r.runCommand("set delay_us=0")
			defer r.runCommand("set delay_us=20")
			p := openNode(b, r.openDevice(Options{}), testEnv(done, true))
			e := &effects.Copy{}
			for i := range pages {
				e.Pairs = append(e.Pairs, copyPair(i, 1))
			}
			b.ReportAllocs()
			for b.Loop() {
				p.StartCopy(e)
				if ev := done.nextEvent(b).(*effects.CopyDone); ev.Code != effects.OK {
					b.Fatalf("got %+v", ev)
				}
			}
		})
	}
}
