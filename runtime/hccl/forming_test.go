//go:build cgo && linux

package hccl_test

import (
	"testing"
	"time"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/runtime/hccl"
	"github.com/kvferry/kvferry/runtime/hccl/hccltest"
	"github.com/kvferry/kvferry/runtime/plane"
	"github.com/kvferry/kvferry/runtime/plane/planetest"
)

// A communicator that cannot be formed at once is tried again, and nothing of the failed attempts is left.
func TestFormingFails(t *testing.T) {
	for _, c := range []struct{ name, rule string }{
		{"slow to prepare", "prepare:delay=30"},
		{"prepare fails", "prepare:fail=1,code=9"},
		{"no memory to make it", "call:sym=HcclCommInitClusterInfoMemConfig,nth=2,code=3"},
		{"it cannot be bound", "call:sym=HcclCommBindMem,nth=1,code=7"},
		{"no stream is left", "call:sym=aclrtCreateStreamWithConfig,nth=1,code=207008"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := hccltest.StartRig(t)
			// The end that did not fail waits for the peer for PrepareTimeout; meanwhile the next communicator is
			// formed.
			open := r.NodeMaker(hccltest.Options{Change: func(o *hccl.Config) { o.PrepareTimeout = time.Second }})
			a, b := planetest.OpenLeased(t, open, 1, pages, pageBytes), planetest.OpenLeased(t, open, 2, pages, pageBytes)
			r.AddFaults(t, c.rule)
			p := &planetest.LeasedPair{A: a, B: b, Link: a.Import(t, b.Inc, b.Plane.Blob())}
			if r.CountInjected(t) == 0 {
				t.Fatal("nothing failed")
			}
			r.ClearFaults(t)
			p.WantWorking(t)
			links := a.Plane.(plane.LinkLister).ListLinks()
			if len(links) != 1 || links[0].Link != p.Link || links[0].State != "up" || links[0].Epoch < 1 || links[0].InFlight != 0 ||
				links[0].Since <= 0 || links[0].Since > plane.Now() || links[0].Until != 0 {
				t.Errorf("operators see the links %+v", links)
			}
		})
	}
}

// If no communicator can be formed, the import ends with a code that says where to look, and leaves nothing.
func TestImportsThatFail(t *testing.T) {
	for _, c := range []struct {
		name, rule string
		want       effects.Code
	}{
		{"the peer is not reached", "call:sym=HcclCommPrepare,nth=*,code=9", effects.Unreachable},
		{"the library fails", "call:sym=HcclCommInitClusterInfoMemConfig,nth=*,code=15", effects.Faulted},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := hccltest.StartRig(t)
			open := r.NodeMaker(hccltest.Options{Change: func(o *hccl.Config) { o.RebuildTries = 3 }})
			a, b := planetest.OpenLeased(t, open, 1, pages, pageBytes), planetest.OpenLeased(t, open, 2, pages, pageBytes)
			r.AddFaults(t, c.rule)
			if e := a.TryImport(t, b.Inc, b.Plane.Blob()); e.Code != c.want {
				t.Fatalf("ended as %s", e.Code)
			}
			r.ClearFaults(t)
			p := &planetest.LeasedPair{A: a, B: b, Link: a.Import(t, b.Inc, b.Plane.Blob())}
			p.WantWorking(t)
		})
	}
}

// Host memory cannot be reached over HCCS.
func TestHostMemoryOverHCCS(t *testing.T) {
	r := hccltest.StartRig(t)
	open := r.NodeMaker(hccltest.Options{HCCS: true, Host: true})
	a, b := planetest.OpenLeased(t, open, 1, pages, pageBytes), planetest.OpenLeased(t, open, 2, pages, pageBytes)
	if e := a.TryImport(t, b.Inc, b.Plane.Blob()); e.Code != effects.Unsupported {
		t.Fatalf("ended as %s", e.Code)
	}
}

// Peers beyond the bound are refused, and admitted once another has left.
func TestLinksAreBounded(t *testing.T) {
	r := hccltest.StartRig(t)
	open := r.NodeMaker(hccltest.Options{Change: func(c *hccl.Config) { c.MaxLinks = 1 }})
	p := planetest.NewLeasedPair(t, open, pages, pageBytes)
	if e := p.A.TryImport(t, p.B.Inc, p.B.Plane.Blob()); e.Code != effects.TooMany {
		t.Fatalf("ended as %s", e.Code)
	}
	p.A.DropLink(t, p.Link)
	eventually(t, "the place is free", func() bool {
		e := p.A.TryImport(t, p.B.Inc, p.B.Plane.Blob())
		p.Link = e.Link
		return e.Code == effects.OK
	})
	p.WantWorking(t)
}
