package memory

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
)

// Ids of grants go on over every width that they had or have: 2^32 grants, which took 49.7 days at a thousand a second;
// and 2^48 of one slot, after which they come in another order. None that stands is found by another's id.
func TestGrantIDsGoOnForever(t *testing.T) {
	for _, from := range []uint64{0, 1<<32 - 3, 1<<48 - 3, 7<<48 - 3} {
		p := New(2, 1, prng.NewShuffle(1, 2), PoolConfig{Pages: 4, ClassShare: 4})
		first, _ := p.GrantPages(p.Pool(0), 0, []uint32{1}, nil, kernel.Ref{})
		second, _ := p.GrantPages(p.Pool(0), 0, []uint32{1}, nil, kernel.Ref{})
		p.EndGrant(first)
		p.EndGrant(second)
		for slot := range p.grants.Slots() { // What the slots remember of their dead.
			h, g := p.grants.Add()
			g.useCount = from
			p.grants.Remove(h)
			_ = slot
		}
		stands, _ := p.GrantPages(p.Pool(0), 0, []uint32{1}, nil, kernel.Ref{})
		seen := map[effects.GrantID]bool{first: true, second: true, stands: true}
		for n := range 12 {
			id, pages := p.GrantPages(p.Pool(0), 0, []uint32{1}, nil, kernel.Ref{})
			if id == 0 || SlotOf(id) == SlotOf(stands) || p.CountOpenPages(id) != 1 {
				t.Fatalf("grant %d from %d is %#x, in slot %d beside %d", n, from, uint64(id), SlotOf(id), SlotOf(stands))
			}
			if seen[id] && from != 0 {
				t.Fatalf("grant %d from %d repeats %#x", n, from, uint64(id))
			}
			seen[id] = true
			p.EndGrant(id)
			if p.CountOpenPages(id) != 0 || p.CountOpenPages(stands) != 1 {
				t.Fatalf("%#x is not over, or another ended with it", uint64(id))
			}
			if _, ok := p.LandPage(id, pages[0]); ok {
				t.Fatalf("a page landed under %#x, which is over", uint64(id))
			}
		}
	}
}

// Nobody tells the next id from those before: pools with other keys, and slots of one pool, give others.
func TestGrantIDsAreHidden(t *testing.T) {
	one := New(4, 1, prng.NewShuffle(1, 2), PoolConfig{Pages: 4, ClassShare: 4})
	two := New(4, 1, prng.NewShuffle(1, 3), PoolConfig{Pages: 4, ClassShare: 4})
	a, _ := one.GrantPages(one.Pool(0), 0, []uint32{1}, nil, kernel.Ref{})
	b, _ := one.GrantPages(one.Pool(0), 0, []uint32{1}, nil, kernel.Ref{})
	c, _ := two.GrantPages(two.Pool(0), 0, []uint32{1}, nil, kernel.Ref{})
	if a>>slotBits == b>>slotBits || a == c {
		t.Errorf("%#x, %#x of one pool, %#x of another", uint64(a), uint64(b), uint64(c))
	}
}
