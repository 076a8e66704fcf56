//go:build cgo && linux

package hccl_test

import (
	"testing"

	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/comm"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

func TestContract(t *testing.T) {
	for _, c := range []struct {
		name string
		o    hccltest.Options
	}{
		{"roce", hccltest.Options{}},
		{"hccs", hccltest.Options{HCCS: true}},
		{"host", hccltest.Options{Host: true, SecondPool: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			planetest.RunLeased(t, hccltest.StartRig(t).NodeMaker(c.o))
		})
	}
	t.Run("root info", func(t *testing.T) {
		r := hccltest.StartRig(t)
		if r.HCCL.Info().Sequence != comm.Exchange {
			t.Skip("root info is the older sequence's")
		}
		planetest.RunLeased(t, r.NodeMaker(hccltest.Options{Change: func(c *hccl.Config) { c.UseRootInfo = true }}))
	})
}
