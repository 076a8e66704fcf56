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

// liesEach is the fraction of lies that each run tells: one in so many.
const liesEach = 36

// Any frame about epochs at any step, to either end: everything that it allocated is freed.
func TestLies(t *testing.T) {
	planetest.EachLie(t, lies.NPULies(), liesEach, func(t *testing.T, lie lies.Lie) {
		r := hccltest.Start(t)
		o := hccltest.Options{Change: func(c *hccl.Config) { c.PrepareTimeout, c.RebuildTries = 300*time.Millisecond, 2 }}
		p := faulty(t, r, o)
		p.RunLie(t, planetest.OpenLeased(t, planetest.LeasedMaker(r.Maker(o)).WithShortTimeouts, 3, pages, pageBytes), lie, hccl.Steps,
			false)
	})
}
