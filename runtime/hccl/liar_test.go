//go:build cgo && linux

package hccl_test

import (
	"testing"
	"time"

	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	lies "github.com/kvferry/kvferry/runtime/plane/liar"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// oneLieIn selects the lies of a run: one lie in every oneLieIn.
const oneLieIn = 36

// Any frame about epochs arrives at any step, at either end: everything that the frame allocated is freed.
func TestLies(t *testing.T) {
	planetest.EachLie(t, lies.NPULies(), oneLieIn, func(t *testing.T, lie lies.Lie) {
		r := hccltest.StartRig(t)
		o := hccltest.Options{Change: func(c *hccl.Config) { c.PrepareTimeout, c.RebuildTries = 300*time.Millisecond, 2 }}
		p := openWithSmallBatches(t, r, o)
		p.RunLie(t, planetest.OpenLeased(t, planetest.LeasedMaker(r.NodeMaker(o)).WithShortTimeouts, 3, pages, pageBytes), lie, hccl.Steps,
			false)
	})
}
