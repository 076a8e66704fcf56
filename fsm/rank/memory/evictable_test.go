package memory

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// What landed for a class counts in its share until somebody keeps it only for as long as nobody wants the page. Who
// waits for memory looks again then. That the class has another owner by now takes nothing from that one.
func TestEvictablePagesAreUncounted(t *testing.T) {
	ps := New(2, 2, prng.Shuffle{}, PoolConfig{Pages: 4, ClassShare: 4})
	p := ps.Pool(0)
	land := func() effects.Page {
		id, pages := ps.GrantPages(p, 1, make([]uint32, 1), nil, kernel.Ref{})
		page := pages[0]
		ps.LandPage(id, page)
		ps.EndGrant(id)
		return page
	}
	a, b := land(), land()
	if p.LandedPages(1) != 2 {
		t.Fatalf("%d landed for class 1", p.LandedPages(1))
	}
	freed := ps.FreedCount()
	p.MarkEvictable(a)
	if p.LandedPages(1) != 1 || ps.FreedCount() != freed+1 || !p.IsLive(a) {
		t.Errorf("%d landed, room made %d times, the page stays: %v", p.LandedPages(1), ps.FreedCount()-freed, p.IsLive(a))
	}
	ps.ReassignClass(1)
	c := land()
	p.MarkEvictable(b)
	if p.LandedPages(1) != 1 {
		t.Errorf("%d landed for the class's new owner, who has one", p.LandedPages(1))
	}
	for _, page := range []effects.Page{a, b, c} {
		p.DropRef(page)
	}
	if p.LandedPages(1) != 0 || p.FreePages() != 4 {
		t.Errorf("%d landed and %d free at the end", p.LandedPages(1), p.FreePages())
	}
}

// A page can be given up only where nothing has it but one reference.
func TestMarkEvictablePanicsInUse(t *testing.T) {
	for name, use := range map[string]func(*Pools, *Pool, effects.Page){
		"a second reference": func(_ *Pools, p *Pool, page effects.Page) { p.AddRef(page) },
		"a hold":             func(_ *Pools, p *Pool, page effects.Page) { p.HoldPage(page) },
		"a reader":           func(ps *Pools, p *Pool, page effects.Page) { ps.LeasePages([]effects.Page{page}, kernel.Ref{}) },
		"a reader, perhaps": func(ps *Pools, p *Pool, page effects.Page) {
			ps.QuarantineGrant(ps.LeasePages([]effects.Page{page}, kernel.Ref{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ps := New(2, 1, prng.Shuffle{}, PoolConfig{Pages: 1, ClassShare: 1})
			p := ps.Pool(0)
			page := p.TakePages(1, nil)[0]
			if !p.IsEvictable(page) {
				t.Fatal("it is in use")
			}
			if use(&ps, p, page); p.IsEvictable(page) {
				t.Error("it could be given up")
			}
			defer func() {
				if recover() == nil {
					t.Error("it was spared")
				}
			}()
			p.MarkEvictable(page)
		})
	}
	ps := New(2, 1, prng.Shuffle{}, PoolConfig{Pages: 1, ClassShare: 1})
	p := ps.Pool(0)
	_, pages := ps.GrantPages(p, 0, make([]uint32, 1), nil, kernel.Ref{})
	p.AddRef(pages[0]) // Readable while its writer goes on.
	if p.IsEvictable(pages[0]) {
		t.Error("a page that is written to could be given up")
	}
}
