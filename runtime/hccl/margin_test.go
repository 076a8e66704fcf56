//go:build cgo && linux

package hccl_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
)

// Each proof waits at least the margins for which the vendor names no bound and which no event reports. A slow machine
// takes longer and passes; at least one of a few rounds is quick enough to show a missing wait.
func TestProofsTakeTheirTime(t *testing.T) {
	for _, c := range []struct {
		hccs            bool
		settled, proven time.Duration // after a cancel, at the initiator; after a revocation, at the target
	}{{false, 20 * time.Millisecond, 0}, {true, 100 * time.Millisecond, 100 * time.Millisecond}} {
		t.Run(fmt.Sprintf("hccs=%v", c.hccs), func(t *testing.T) {
			r := hccltest.StartRig(t)
			p := openWithSmallBatches(t, r, hccltest.Options{HCCS: c.hccs, Change: func(c *hccl.Config) { c.CancelGrace = time.Millisecond }})
			for range 5 {
				push, kept := p.NewPush(t, 0, 2), p.NewPush(t, 4, 2)
				before := r.CountInjected(t)
				r.AddFaults(t, "done:hang=1")
				corr := p.A.StartTransfer(push)
				eventually(t, "a batch hangs", func() bool { return r.CountInjected(t) > before })
				from := time.Now()
				p.A.Do(&effects.Cancel{Corr: corr})
				p.A.AwaitSettled(t, corr)
				if took := time.Since(from); took < c.settled {
					t.Errorf("what an abort found under way was settled after %v; want %v", took, c.settled)
				}
				r.ClearFaults(t)
				p.WantEnd(t, p.NewPush(t, 2, 2), effects.OK)

				from = time.Now()
				p.B.RevokeGrant(t, kept.Grant)
				if took := time.Since(from); took < c.proven {
					t.Errorf("a grant was revoked after %v; want %v", took, c.proven)
				}
				p.WantEnd(t, p.NewPush(t, 6, 2), effects.OK)
			}
			p.WantWorking(t)
		})
	}
}
