package memory

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/table"
)

// Pools are all memory of a rank, and the one table of the grants over it: an id names a grant whichever pool its pages
// are of. What a class may have is counted for each pool; how many grants, for all together.
type Pools struct {
	list    []Pool
	grants  table.Slab[grant]
	hidden  prng.Shuffle // makes grant ids such that nobody without it can guess them
	held    []int        // for each class: write grants
	present []bool       // for each class: its peer is here, and may want pages at any time
	here    int          // how many are
	freed   uint64       `snap:"skip"` // as a pool's
}

// PoolConfig is the size of a pool, how many of its pages one class may be granted at a time, and how many our own
// engine may have, where what it has is counted. Behind so many pages of the same id it has the numbers that follow
// theirs: what names a page within the node names it by its number alone, and drivers know where each range lies.
// Claimed: its pages are the engine's own, which says by number which of them it lends (claim.go); nobody takes any
// that he is not given. Key is the configuration's key that says the size, for the texts of refusals.
type PoolConfig struct {
	Pages, Share, Own, Behind uint32
	Claimed                   bool
	Key                       string
}

// New returns pools of free pages, which have their places for ids, with room for grantsMax grants to classes 0 to
// classes-1.
func New(grantsMax, classes int, hidden prng.Shuffle, pools ...PoolConfig) Pools {
	return new(Pools).Emptied(grantsMax, classes, hidden, pools...)
}

// Emptied returns what New does, in the memory of ps, which is not used any more.
func (ps *Pools) Emptied(grantsMax, classes int, hidden prng.Shuffle, pools ...PoolConfig) Pools {
	e := Pools{
		list:   slices.Grow(ps.list[:0], len(pools))[:len(pools)],
		grants: ps.grants.Emptied(min(grantsMax, GrantsMax)), hidden: hidden,
		held: table.Zeroed(ps.held, classes), present: table.Zeroed(ps.present, classes),
	}
	for i := range e.list {
		e.list[i] = e.list[i].emptied(i, pools[i], classes)
	}
	return e
}

// Pool is the one at this place. It stays where it is.
func (ps *Pools) Pool(id effects.PoolID) *Pool { return &ps.list[id] }

// Of is the pool that a page is of, by its id and its number: pools that lie behind another one share its id.
func (ps *Pools) Of(page effects.Page) *Pool {
	for i := range ps.list {
		if p := &ps.list[i]; p.id == page.Pool && p.has(page.Index) {
			return p
		}
	}
	panic(fmt.Sprintf("BUG: no pool has page %d of pool %d", page.Index, page.Pool))
}

// Lives reports whether there is such a page, in this life and referenced.
func (ps *Pools) Lives(page effects.Page) bool {
	for i := range ps.list {
		if ps.list[i].Lives(page) {
			return true
		}
	}
	return false
}

// PoolsMax is the most pools that a rank has.
const PoolsMax = 3

// Freed counts what ever made room: pages that became free, and pages and slots that
// grants gave up. Who waits for memory looks again when it has changed: a grant whose
// pages all landed frees none, but the next one may have waited for its slot or share.
func (ps *Pools) Freed() uint64 {
	n := ps.freed
	for i := range ps.list {
		n += ps.list[i].freed
	}
	return n
}

// ClassUse is the number of pages that are granted to or in quarantine for class.
func (ps *Pools) ClassUse(class int) (n uint32) {
	for i := range ps.list {
		n += ps.list[i].used[class]
	}
	return n
}

// Present notes that the peer of this class is here, and may want pages at any time.
func (ps *Pools) Present(class int) {
	if !ps.present[class] {
		ps.present[class] = true
		ps.here++
	}
}

// Absent notes that it is gone, or was not heard of for long. Who waits for his share looks again.
func (ps *Pools) Absent(class int) {
	if ps.present[class] {
		ps.present[class] = false
		ps.here--
		ps.freed++
	}
}

// Disown leaves the class to somebody else, who does not answer for what landed before.
func (ps *Pools) Disown(class int) {
	for i := range ps.list {
		l := &ps.list[i].landed
		l.of[class] = 0
		l.lives[class]++
	}
}

// contested says whether anybody but class is present.
func (ps *Pools) contested(class int) bool { return ps.here > 1 || ps.here == 1 && !ps.present[class] }
