package memory

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"pgregory.net/rapid"
)

// Whatever is taken, granted, landed, quarantined and ended: every page is free
// exactly when nothing keeps it, no life of a page is given twice, and the counts
// add up (S5).
func TestPoolConserves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total, pool = 6, 1
		ps := New(4, 2, prng.Shuffle{}, PoolConfig{Pages: 2, ClassShare: 2}, PoolConfig{Pages: total, ClassShare: total})
		p := ps.Pool(pool)
		var refs, holds []effects.Page
		type granted struct {
			id          effects.GrantID
			pages       []effects.Page
			owner       kernel.Ref
			quarantined bool
		}
		owners := uint64(0)
		owner := func(who kernel.Owner) kernel.Ref {
			owners++
			return kernel.Ref{Owner: who, Kind: uint8(owners), Subject: table.Handle(owners), Attempt: owners}
		}
		var grants []granted
		var loans []granted
		lives := map[effects.Generation]bool{}
		born := func(t *rapid.T, pages []effects.Page) {
			for _, pg := range pages {
				if pg.Pool != pool {
					t.Fatalf("page of pool %d given by pool %d", pg.Pool, pool)
				}
				if lives[pg.Generation] {
					t.Fatalf("generation %d given twice", pg.Generation)
				}
				lives[pg.Generation] = true
			}
		}
		drop := func(from *[]effects.Page, t *rapid.T) effects.Page {
			if len(*from) == 0 {
				t.Skip("none")
			}
			i := rapid.IntRange(0, len(*from)-1).Draw(t, "which")
			pg := (*from)[i]
			*from = append((*from)[:i:i], (*from)[i+1:]...)
			return pg
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n := rapid.Uint32Range(1, 3).Draw(t, "n")
				if n > p.FreePages() {
					t.Skip("full")
				}
				pages := p.TakePages(n, nil)
				born(t, pages)
				refs = append(refs, pages...)
			},
			"hold": func(t *rapid.T) {
				if len(refs) == 0 {
					t.Skip("none")
				}
				pg := rapid.SampledFrom(refs).Draw(t, "page")
				p.HoldPage(pg)
				holds = append(holds, pg)
			},
			"unhold": func(t *rapid.T) { p.ReleaseHold(drop(&holds, t)) },
			"unref":  func(t *rapid.T) { p.DropRef(drop(&refs, t)) },
			"grant": func(t *rapid.T) {
				lengths := make([]uint32, rapid.IntRange(1, 3).Draw(t, "n"))
				if !ps.CanGrantPages(p, 1, uint32(len(lengths))) {
					t.Skip("does not fit")
				}
				whose := owner(kernel.OwnerPushTarget)
				id, pages := ps.GrantPages(p, 1, lengths, nil, whose)
				born(t, pages)
				grants = append(grants, granted{id: id, owner: whose, pages: append([]effects.Page(nil), pages...)})
			},
			"lend": func(t *rapid.T) {
				if len(refs) == 0 || !ps.HasGrantSlot() {
					t.Skip("none")
				}
				pages := []effects.Page{rapid.SampledFrom(refs).Draw(t, "page")}
				whose := owner(kernel.OwnerPullSource)
				loans = append(loans, granted{id: ps.LeasePages(pages, whose), owner: whose, pages: pages})
			},
			"return": func(t *rapid.T) {
				if len(loans) == 0 {
					t.Skip("none")
				}
				if rapid.Bool().Draw(t, "quarantine") {
					ps.QuarantineGrant(loans[0].id)
				}
				ps.EndGrant(loans[0].id)
				if open, _ := ps.GrantState(loans[0].id); open {
					t.Fatal("a loan that ended is still there")
				}
				if ps.OwnerOf(loans[0].id) != (kernel.Ref{}) {
					t.Fatal("a loan that ended is still somebody's")
				}
				loans = loans[1:]
			},
			"land": func(t *rapid.T) {
				if len(grants) == 0 {
					t.Skip("none")
				}
				g := &grants[rapid.IntRange(0, len(grants)-1).Draw(t, "grant")]
				if len(g.pages) == 0 {
					t.Skip("all landed")
				}
				pg := g.pages[0]
				if _, ok := ps.LandPage(g.id+1<<slotBits, pg); ok {
					t.Fatal("landed under a grant that was never given")
				}
				if _, ok := ps.LandPage(g.id, effects.Page{Index: pg.Index, Generation: pg.Generation}); ok {
					t.Fatal("a page of another pool landed")
				}
				if _, ok := ps.LandPage(g.id, pg); !ok {
					t.Fatal("a granted page did not land")
				}
				if _, ok := ps.LandPage(g.id, pg); ok {
					t.Fatal("a page landed twice")
				}
				g.pages = g.pages[1:]
				refs = append(refs, pg)
			},
			"quarantine": func(t *rapid.T) {
				for i := range grants {
					if !grants[i].quarantined {
						ps.QuarantineGrant(grants[i].id)
						grants[i].quarantined = true
						return
					}
				}
			},
			"end": func(t *rapid.T) {
				if len(grants) == 0 {
					t.Skip("none")
				}
				i := rapid.IntRange(0, len(grants)-1).Draw(t, "grant")
				g := grants[i]
				if freed := ps.EndGrant(g.id); int(freed) != len(g.pages) {
					t.Fatalf("freed %d pages, want %d", freed, len(g.pages))
				}
				grants = append(grants[:i:i], grants[i+1:]...)
			},
			"": func(t *rapid.T) {
				kept := map[uint32]bool{}
				for _, pg := range append(append([]effects.Page(nil), refs...), holds...) {
					kept[pg.Index] = true
				}
				for _, l := range loans {
					kept[l.pages[0].Index] = true
				}
				if int(p.LeasedPages()) != len(loans) {
					t.Fatalf("%d lent, want %d", p.LeasedPages(), len(loans))
				}
				for _, g := range append(append([]granted(nil), grants...), loans...) {
					if ps.OwnerOf(g.id) != g.owner {
						t.Fatalf("grant %d is said to be of %v, want %v", g.id, ps.OwnerOf(g.id), g.owner)
					}
				}
				var inForce, quarantined int
				for _, g := range grants {
					for _, pg := range g.pages {
						kept[pg.Index] = true
					}
					if g.quarantined {
						quarantined += len(g.pages)
					} else {
						inForce += len(g.pages)
					}
				}
				if int(p.FreePages())+len(kept) != total {
					t.Fatalf("%d free and %d kept of %d", p.FreePages(), len(kept), total)
				}
				granted, ended, all := int(p.GrantedPages()), int(p.QuarantinedPages()), int(ps.ClassUse(1))
				if granted != inForce || ended != quarantined || all != inForce+quarantined {
					t.Fatalf("granted %d quarantined %d class %d, want %d and %d", granted, ended, all, inForce, quarantined)
				}
			},
		})
	})
}

// A double release is our own defect, and is found at once.
func TestDoubleReleasePanics(t *testing.T) {
	ps := New(1, 1, prng.Shuffle{}, PoolConfig{Pages: 2})
	p := ps.Pool(0)
	pages := p.TakePages(1, nil)
	p.DropRef(pages[0])
	defer func() {
		if recover() == nil {
			t.Error("the second release went unnoticed")
		}
	}()
	p.DropRef(pages[0])
}

// A page of another pool is none of this one's, whatever its index and generation.
func TestPoolsAreSeparate(t *testing.T) {
	ps := New(1, 1, prng.Shuffle{}, PoolConfig{Pages: 2}, PoolConfig{Pages: 2})
	a, b := ps.Pool(0), ps.Pool(1)
	ours, theirs := a.TakePages(1, nil)[0], b.TakePages(1, nil)[0]
	if ours.Index != theirs.Index || ours.Generation != theirs.Generation || ours == theirs {
		t.Fatalf("%v and %v", ours, theirs)
	}
	if !a.IsLive(ours) || a.IsLive(theirs) || !b.IsLive(theirs) || b.IsLive(ours) {
		t.Error("a page lives in a pool that is not its own")
	}
	if a.UsedPages() != 1 || a.FreePages() != 1 {
		t.Errorf("%d taken and %d free of 2", a.UsedPages(), a.FreePages())
	}
	defer func() {
		if recover() == nil {
			t.Error("the other pool's page was released here")
		}
	}()
	a.DropRef(theirs)
}

// Of grants no class has more than it leaves, however small they are; what ends makes room again.
func TestGrantsAreShared(t *testing.T) {
	p := New(8, 3, prng.Shuffle{}, PoolConfig{Pages: 32, ClassShare: 32})
	take := func(class int) (ids []effects.GrantID) {
		for p.CanGrantPages(p.Pool(0), class, 1) {
			id, _ := p.GrantPages(p.Pool(0), class, []uint32{1}, nil, kernel.Ref{})
			ids = append(ids, id)
		}
		return ids
	}
	first, second := take(1), take(2)
	if len(first) != 4 || len(second) != 2 {
		t.Fatalf("the first class has %d grants of eight, the second %d; want 4 and 2", len(first), len(second))
	}
	p.EndGrant(first[0])
	if !p.CanGrantPages(p.Pool(0), 2, 1) {
		t.Error("what the first gave up is not the second's")
	}
}
