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

// liesEach is what part of the lies is told, one in so many.
const liesEach = 36

// Whatever is said of epochs at whatever step, to either end, and all that it took is given back.
func TestLies(t *testing.T) {
	planetest.EachLie(t, lies.OfNPUs(), liesEach, func(t *testing.T, lie lies.Lie) {
		r := hccltest.Start(t)
		o := hccltest.Options{Change: func(c *hccl.Config) { c.PrepareTimeout, c.RebuildTries = 300*time.Millisecond, 2 }}
		p := faulty(t, r, o)
		p.Lied(t, planetest.OpenLeased(t, planetest.LeasedMaker(r.Maker(o)).Hasty, 3, pages, pageBytes), lie, hccl.Steps,
			false)
	})
}
