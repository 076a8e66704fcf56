package memory

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/prng"
	"github.com/kvferry/kvferry/fsm/table"
)

// Pools are all pools of a rank and the table of the grants over their pages. One table serves all pools, so a grant id
// names a grant without naming a pool. The pages of a fairness class are limited for each pool, grants for all pools
// together.
type Pools struct {
	pools          []Pool
	grants         table.Slab[grant]
	idOrder        prng.Shuffle // the secret order of grant ids, so that a peer cannot guess an id (rule M2)
	grantsByClass  []int        // by class: write grants, in force or in quarantine
	present        []bool       // by class: the peer is present, and may request pages at any time
	presentCount   int          // the number of classes that are present
	groups         groups
	leasedPages    uint32 // of all pools
	leasedPagesMax uint32 // the maximum of leasedPages since the start
	freedCount     uint64 `snap:"skip"` // counts what became available beside pages, as Pool.freedCount does
}

// PoolConfig describes a pool.
type PoolConfig struct {
	// Pages is the number of pages of the pool. ClassShare is the limit of pages that one class may be granted at a
	// time, and OriginShare that of all classes whose peers have the same Origin, while a peer with another one is
	// present; 0: all pages. TenantShare is the limit of pages of one tenant, while another tenant has or wants pages; 0:
	// all pages. EngineShare is the limit of pages for this rank's engine, where the engine's pages are counted.
	//
	// FirstIndex, if not 0, makes the pool a continuation of pool 0: both have the same id, and the page numbers of
	// this pool begin at FirstIndex. Messages within the node then name a page by its number alone, and drivers know
	// where each range lies.
	Pages, ClassShare, OriginShare, TenantShare, EngineShare, FirstIndex uint32
	// Claimed says that the pages are the engine's own blocks. The engine names the pages that it lends (claim.go), and
	// no page is taken that the engine did not name.
	Claimed bool
	// Key is the configuration key that sets the pool's size, for texts of refusals.
	Key string
}

// New returns pools in which all pages are free. The index of a pool in pools is its id, unless the pool continues pool
// 0 (PoolConfig.FirstIndex). There may be at most grantsMax grants at a time, to the classes 0 to classes-1. The
// shuffle hidden decides the order of grant ids.
func New(grantsMax, classes int, idOrder prng.Shuffle, pools ...PoolConfig) Pools {
	return new(Pools).Recycle(grantsMax, classes, idOrder, pools...)
}

// Recycle is New in the memory of ps. The caller must not use ps afterwards.
func (ps *Pools) Recycle(grantsMax, classes int, idOrder prng.Shuffle, pools ...PoolConfig) Pools {
	e := Pools{
		pools:  slices.Grow(ps.pools[:0], len(pools))[:len(pools)],
		grants: ps.grants.Recycle(min(grantsMax, GrantsMax)), idOrder: idOrder,
		grantsByClass: table.RecycleSlice(ps.grantsByClass, classes), present: table.RecycleSlice(ps.present, classes),
		groups: ps.groups.recycle(classes),
	}
	for i := range e.pools {
		e.pools[i] = e.pools[i].recycle(i, pools[i], classes)
	}
	return e
}

// Pool returns the pool with this index. The pointer stays valid until Recycle.
func (ps *Pools) Pool(id effects.PoolID) *Pool { return &ps.pools[id] }

// PoolOf returns the pool that a page belongs to. PoolOf compares the page's number as well as its pool id, because
// pools that continue pool 0 share its id. PoolOf panics if there is no such page.
func (ps *Pools) PoolOf(page effects.Page) *Pool {
	for i := range ps.pools {
		if p := &ps.pools[i]; p.id == page.Pool && p.hasPage(page.Index) {
			return p
		}
	}
	panic(fmt.Sprintf("BUG: no pool has page %d of pool %d", page.Index, page.Pool))
}

// IsLive reports whether the page exists, still has the generation that it names, and has a reference (rule M2).
func (ps *Pools) IsLive(page effects.Page) bool {
	for i := range ps.pools {
		if ps.pools[i].IsLive(page) {
			return true
		}
	}
	return false
}

// PoolsMax is the maximum number of pools of a rank.
const PoolsMax = 3

// FreedCount returns a counter of everything that has become available: free pages, and the slots and shares of grants.
// When the counter has changed, requests that wait for memory are tried again. Example: a grant whose pages have all
// landed frees no page, but the next request may have waited for its slot in the table or for the share of its class.
func (ps *Pools) FreedCount() uint64 {
	n := ps.freedCount
	for i := range ps.pools {
		n += ps.pools[i].freedCount
	}
	return n
}

// ClassUse returns the number of pages that count as used by class in all pools: pages that are granted, in quarantine
// or promised.
func (ps *Pools) ClassUse(class int) (n uint32) {
	for i := range ps.pools {
		n += ps.pools[i].usedByClass[class]
	}
	return n
}

// MarkPresent records that the peer of this class is present, and may request pages at any time. While another class is
// present, pages that have landed count against the share of a class (FitsShare).
func (ps *Pools) MarkPresent(class int) {
	if !ps.present[class] {
		ps.present[class] = true
		ps.presentCount++
		ps.groups.addPresent(class, 1)
	}
}

// MarkAbsent records that the peer of this class has disconnected or was silent for long. Requests that wait for memory
// are tried again, because the shares of other classes may have grown.
func (ps *Pools) MarkAbsent(class int) {
	if ps.present[class] {
		ps.present[class] = false
		ps.presentCount--
		ps.groups.addPresent(class, -1)
		ps.freedCount++
	}
}

// ReassignClass gives the class to another peer. Pages that landed for the former peer of the class are not counted for
// the new peer, but still count for the group that the class leaves.
func (ps *Pools) ReassignClass(class int) {
	ps.leaveGroup(class)
	for i := range ps.pools {
		l := &ps.pools[i].landedByClass
		l.counts[class] = 0
		l.assignments[class]++
	}
}

// isContested reports whether the peer of any other class is present.
func (ps *Pools) isContested(class int) bool {
	return ps.presentCount > 1 || ps.presentCount == 1 && !ps.present[class]
}

// RecountShares counts the pages and the grants of each class again. promised adds the pages that are promised to each
// class. The pages of class 0 are not compared, because the engine counts its own.
func (ps *Pools) RecountShares(r *table.Recount, promised func()) {
	classes := len(ps.grantsByClass)
	for slot := range ps.grants.Slots() {
		if g := ps.grants.Get(ps.grants.At(slot)); g != nil && !g.isReadLease {
			r.Add(g.class, 1)
		}
	}
	r.Report("grants", classes, func(class int) int { return ps.grantsByClass[class] }, table.Empty)
	for i := range ps.pools {
		for k := range ps.pools[i].pages {
			if g := ps.findGrant(ps.pools[i].pages[k].grant); g != nil && g.class != 0 {
				r.Add(g.class, 1)
			}
		}
	}
	engine := 0
	for i := range ps.pools {
		engine += int(ps.pools[i].usedByClass[0])
	}
	r.Add(0, engine)
	promised()
	r.Report("granted and promised pages", classes, func(class int) int { return int(ps.ClassUse(class)) }, table.Bounded)
	for i := range ps.pools {
		p := &ps.pools[i]
		for k := range p.pages {
			if m := p.pages[k].landedFor; m.class != 0 && m.assignment == p.landedByClass.assignments[m.class-1] {
				r.Add(int(m.class)-1, 1)
			}
		}
		r.Report("landed pages", classes, func(class int) int { return int(p.landedByClass.counts[class]) }, table.Bounded)
		p.recountTenants(r)
	}
	ps.recountGroups(r)
}
