package memory

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// What landed for a class counts in its share until somebody keeps it only for as long as nobody wants the page. Who
// waits for memory looks again then. That the class has another owner by now takes nothing from that one.
func TestSparedPagesAreNobodys(t *testing.T) {
	ps := New(2, 2, prng.Shuffle{}, PoolConfig{Pages: 4, Share: 4})
	p := ps.Pool(0)
	land := func() effects.Page {
		id, pages := ps.Grant(p, 1, make([]uint32, 1), kernel.Ref{})
		page := pages[0]
		ps.Land(id, page)
		ps.End(id)
		return page
	}
	a, b := land(), land()
	if p.Landed(1) != 2 {
		t.Fatalf("%d landed for class 1", p.Landed(1))
	}
	freed := ps.Freed()
	p.Spare(a)
	if p.Landed(1) != 1 || ps.Freed() != freed+1 || !p.Lives(a) {
		t.Errorf("%d landed, room made %d times, the page stays: %v", p.Landed(1), ps.Freed()-freed, p.Lives(a))
	}
	ps.Disown(1)
	c := land()
	p.Spare(b)
	if p.Landed(1) != 1 {
		t.Errorf("%d landed for the class's new owner, who has one", p.Landed(1))
	}
	for _, page := range []effects.Page{a, b, c} {
		p.Unref(page)
	}
	if p.Landed(1) != 0 || p.Free() != 4 {
		t.Errorf("%d landed and %d free at the end", p.Landed(1), p.Free())
	}
}

// A page can be given up only where nothing has it but one reference.
func TestWhatIsInUseIsNotSpared(t *testing.T) {
	for name, use := range map[string]func(*Pools, *Pool, effects.Page){
		"a second reference": func(_ *Pools, p *Pool, page effects.Page) { p.Share(page) },
		"a hold":             func(_ *Pools, p *Pool, page effects.Page) { p.Hold(page) },
		"a reader":           func(ps *Pools, p *Pool, page effects.Page) { ps.Lend([]effects.Page{page}, kernel.Ref{}) },
		"a reader, perhaps": func(ps *Pools, p *Pool, page effects.Page) {
			ps.Quarantine(ps.Lend([]effects.Page{page}, kernel.Ref{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ps := New(2, 1, prng.Shuffle{}, PoolConfig{Pages: 1, Share: 1})
			p := ps.Pool(0)
			page := p.Take(1, nil)[0]
			if !p.Evictable(page) {
				t.Fatal("it is in use")
			}
			if use(&ps, p, page); p.Evictable(page) {
				t.Error("it could be given up")
			}
			defer func() {
				if recover() == nil {
					t.Error("it was spared")
				}
			}()
			p.Spare(page)
		})
	}
	ps := New(2, 1, prng.Shuffle{}, PoolConfig{Pages: 1, Share: 1})
	p := ps.Pool(0)
	_, pages := ps.Grant(p, 0, make([]uint32, 1), kernel.Ref{})
	p.Share(pages[0]) // Readable while its writer goes on.
	if p.Evictable(pages[0]) {
		t.Error("a page that is written to could be given up")
	}
}
