package memory

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"pgregory.net/rapid"
)

// The two hosts of these tests.
const (
	hostA effects.Origin = 0xA
	hostB effects.Origin = 0xB
)

// newHosts returns a pool of 8 pages, of which a class may have 4 and an origin 6. Classes 1 and 2 are names of one
// present host, and class 3 that of another, which is absent.
func newHosts(t *testing.T) *Pools {
	ps := New(16, 4, prng.Shuffle{}, PoolConfig{Pages: 8, ClassShare: 4, OriginShare: 6})
	for class, origin := range []effects.Origin{1: hostA, 2: hostA, 3: hostB} {
		if class > 0 {
			ps.SetOrigin(class, origin)
		}
	}
	ps.MarkPresent(1)
	ps.MarkPresent(2)
	t.Cleanup(func() { wantRecounted(t, &ps) })
	return &ps
}

type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

// wantRecounted checks that the counts are what the rows say.
func wantRecounted(t failer, ps *Pools) {
	t.Helper()
	var r table.Recount
	ps.RecountShares(&r, func() {
		for i := range ps.pools {
			r.Add(1, int(ps.pools[i].promisedPages))
		}
	})
	for _, c := range r.Counts {
		if c.Counted != c.Actual {
			t.Errorf("%d %s are counted, and there are %d", c.Counted, c.Name, c.Actual)
		}
	}
}

func grantTo(ps *Pools, class int, n int) effects.GrantID {
	id, _ := ps.GrantPages(ps.Pool(0), class, make([]uint32, n), nil, kernel.Ref{})
	return id
}

// land grants a class n pages and lands them.
func land(ps *Pools, class, n int) (pages []effects.Page) {
	id := grantTo(ps, class, n)
	pages = append(pages, ps.PagesOf(id)...)
	for _, pg := range pages {
		ps.LandPage(id, pg)
	}
	ps.EndGrant(id)
	return pages
}

// All names of a host together have no more than the share of an origin while another host is present, whatever state
// the pages are in. A host that is alone is limited by the shares of its names only.
func TestNamesOfAHostShareItsPages(t *testing.T) {
	ps := newHosts(t)
	p := ps.Pool(0)
	grantTo(ps, 1, 2)
	ps.QuarantineGrant(grantTo(ps, 1, 1))
	land(ps, 2, 1)
	ps.PromisePages(p, 1, 1)
	defer ps.UnpromisePages(p, 1, 1)
	if !ps.FitsShare(p, 2, 3) {
		t.Error("a host that is alone has no more than the share of an origin")
	}
	before := ps.FreedCount()
	ps.MarkPresent(3)
	if ps.FitsShare(p, 2, 2) || !ps.FitsShare(p, 2, 1) || ps.OriginUse(p, 2) != 5 || p.OriginLimit() != 6 {
		t.Errorf("the names of a host fit 2: %t, 1: %t; they have %d of %d", ps.FitsShare(p, 2, 2), ps.FitsShare(p, 2, 1),
			ps.OriginUse(p, 2), p.OriginLimit())
	}
	if !ps.FitsShare(p, 3, 3) || ps.OriginUse(p, 3) != 0 {
		t.Errorf("the other host has %d pages", ps.OriginUse(p, 3))
	}
	ps.MarkAbsent(3)
	if !ps.FitsShare(p, 2, 3) || ps.FreedCount() == before {
		t.Error("the share of an origin outlives the other host")
	}
}

// Pages that landed count for the host, although the name for which they landed is gone, until they are free.
func TestLandedPagesOutliveTheirName(t *testing.T) {
	ps := newHosts(t)
	p := ps.Pool(0)
	ps.MarkPresent(3)
	pages := land(ps, 1, 4)
	ps.MarkAbsent(1)
	ps.ReassignClass(1)
	ps.SetOrigin(1, hostA)
	ps.MarkPresent(1)
	if p.LandedPages(1) != 0 || ps.OriginUse(p, 1) != 4 || ps.FitsShare(p, 1, 3) || !ps.FitsShare(p, 1, 2) {
		t.Errorf("%d pages landed for the new name, %d count for its host", p.LandedPages(1), ps.OriginUse(p, 1))
	}
	ps.MarkAbsent(1)
	ps.ReassignClass(1)
	ps.SetOrigin(1, hostB)
	if ps.OriginUse(p, 1) != 0 || ps.OriginUse(p, 2) != 4 {
		t.Errorf("%d and %d pages count", ps.OriginUse(p, 1), ps.OriginUse(p, 2))
	}
	p.MarkEvictable(pages[0]) // Any class can have it.
	for i, pg := range pages {
		if left := ps.OriginUse(p, 2); left != uint32(min(3, 4-i)) {
			t.Errorf("%d pages count when %d are free", left, i)
		}
		p.DropRef(pg)
	}
}

// A peer that says hello from another host takes along what it has, but not what landed, nor that its former host is
// present.
func TestPeerThatMovesTakesItsPagesAlong(t *testing.T) {
	ps := newHosts(t)
	p := ps.Pool(0)
	id := grantTo(ps, 1, 2)
	land(ps, 1, 1)
	ps.SetOrigin(1, hostB)
	if ps.OriginUse(p, 1) != 2 || ps.OriginUse(p, 2) != 1 || ps.OriginSlotOf(1) != ps.FindOrigin(hostB) {
		t.Errorf("%d pages count for the new host, and %d for the former one", ps.OriginUse(p, 1), ps.OriginUse(p, 2))
	}
	if ps.FitsShare(p, 2, 6) || !ps.groups.isContested(ps.groups.groupOf(2)) {
		t.Error("the other name of the host is alone, although the peer that moved is present")
	}
	ps.MarkAbsent(2)
	if ps.groups.isContested(ps.groups.groupOf(1)) {
		t.Error("a host is present of which no name is")
	}
	ps.EndGrant(id)
}

// A host that is known by nothing but landed pages makes room for another if there are too many, the one with the fewest
// pages first. Its pages count for nobody then.
func TestForgottenOrigins(t *testing.T) {
	ps := New(16, 2, prng.Shuffle{}, PoolConfig{Pages: 16, ClassShare: 16, OriginShare: 16})
	p := ps.Pool(0)
	var pages []effects.Page
	for i, n := range []int{2, 1, 3, 2} { // A class has one origin at a time, and four are remembered.
		ps.SetOrigin(1, effects.Origin(i))
		pages = append(pages, land(&ps, 1, n)...)
	}
	ps.SetOrigin(1, 100)
	for i, want := range []bool{true, false, true, true} {
		if known := ps.FindOrigin(effects.Origin(i)) >= 0; known != want {
			t.Errorf("origin %d is known: %t", i, known)
		}
	}
	if land(&ps, 1, 1); ps.OriginUse(p, 1) != 1 {
		t.Errorf("%d pages count for the new origin", ps.OriginUse(p, 1))
	}
	for _, pg := range pages {
		p.DropRef(pg)
	}
	if ps.OriginUse(p, 1) != 1 {
		t.Errorf("%d pages count for the new origin when those of others are free", ps.OriginUse(p, 1))
	}
	wantRecounted(t, &ps)
}

// Whatever is granted, landed and freed, whoever moves or makes room: the counts of origins are what the rows say.
func TestOriginsAreCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const classes = 4
		ps := New(16, classes, prng.Shuffle{}, PoolConfig{Pages: 12, ClassShare: 6, OriginShare: 8})
		p := ps.Pool(0)
		var grants []effects.GrantID
		var landed []effects.Page
		class := func(t *rapid.T) int { return rapid.IntRange(1, classes-1).Draw(t, "class") }
		take := func(t *rapid.T, n int) int {
			if n == 0 {
				t.Skip("none")
			}
			return rapid.IntRange(0, n-1).Draw(t, "which")
		}
		t.Repeat(map[string]func(*rapid.T){
			"grant": func(t *rapid.T) {
				if c, n := class(t), rapid.Uint32Range(1, 3).Draw(t, "n"); ps.CanGrantPages(p, c, n) {
					grants = append(grants, grantTo(&ps, c, int(n)))
				}
			},
			"land": func(t *rapid.T) {
				id := grants[take(t, len(grants))]
				for _, pg := range ps.PagesOf(id) {
					if _, ok := ps.LandPage(id, pg); ok {
						landed = append(landed, pg)
						return
					}
				}
			},
			"end": func(t *rapid.T) {
				i := take(t, len(grants))
				ps.EndGrant(grants[i])
				grants = append(grants[:i:i], grants[i+1:]...)
			},
			"drop": func(t *rapid.T) {
				i := take(t, len(landed))
				p.DropRef(landed[i])
				landed = append(landed[:i:i], landed[i+1:]...)
			},
			"move":     func(t *rapid.T) { ps.SetOrigin(class(t), effects.Origin(rapid.IntRange(0, 9).Draw(t, "origin"))) },
			"present":  func(t *rapid.T) { ps.MarkPresent(class(t)) },
			"absent":   func(t *rapid.T) { ps.MarkAbsent(class(t)) },
			"reassign": func(t *rapid.T) { ps.ReassignClass(class(t)) },
			"": func(t *rapid.T) {
				wantRecounted(t, &ps)
				present := map[effects.Origin]bool{}
				for c := range classes {
					if g := ps.groups.groupOf(c); g != nil && ps.present[c] {
						present[g.origin] = true
					}
				}
				if len(present) != ps.groups.presentCount {
					t.Errorf("%d origins are counted as present, and %d are", ps.groups.presentCount, len(present))
				}
			},
		})
	})
}
