// Package memory accounts for the pages of a rank: which part of the system may touch which page, and until when. It
// keeps rules M1 to M3 of docs/safety.md.
//
// A page has a generation, references (its content is needed), in-flight references (work of this rank uses the page,
// see [Pool.HoldPage]), and grants that are in force or in quarantine: either one write grant, or any number of read
// grants. A grant is in quarantine when it has ended by the rank's decision, but the peer may still be able to touch
// its pages.
//
// The rank owns one [Pools] value, made by [New], and passes it to the rooms in env.Env. A room that serves a sender
// asks [Pools.CanGrantPages], grants pages with [Pools.GrantPages], and reports each page that was stored with
// [Pools.LandPage]. A room that serves a reader leases pages with [Pools.LeasePages]. Both end with [Pools.EndGrant],
// after [Pools.QuarantineGrant] if the peer may still touch the pages. The engine's reservations and local copies take
// pages with [Pool.TakePages] and give pages back with [Pool.DropRef].
//
// A caller may rely on the following:
//
//   - A page is free exactly when it has no reference, no in-flight reference, and no grant in force or in quarantine.
//   - Only this package hands out pages, generations and grant ids. A generation belongs to one use of one page, and a
//     grant id to a single grant (the comment of grant.go says how long that holds).
//   - The pages of each fairness class are counted while their grant is in force or in quarantine, and after they have
//     landed (see [Pools.FitsShare]). So are those of all classes whose peers have the same Origin (see
//     [Pools.FitsOrigin]). The pages of each tenant are counted from the grant or reservation on (see [Pool.FitsTenant]).
//   - A call that would break one of these rules panics.
//
// Example: a sender pushes two chunks, and the network loses the second one.
//
//  1. GrantPages takes pages 7 and 4, gives them the generations 12 and 13, and returns grant g.
//  2. The first chunk is stored. LandPage(g, page 7) turns the write grant on page 7 into a reference, in the same step.
//     Page 4 stays open.
//  3. The lease expires, and the rank revokes the grant: QuarantineGrant(g). Page 4 is still not free, because the late
//     store may yet arrive. Page 7 can be read.
//  4. The plane confirms that the sender cannot store any more. EndGrant(g) frees page 4 and returns 1. Page 7 stays in use
//     until DropRef drops its last reference.
//  5. A late LandPage(g, page 4) returns false, because grant g is over.
package memory

import (
	"cmp"
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// page is the state of one page. The page is free when none of refs, holds, grant and loans is set (rule M1).
type page struct {
	// generation numbers the present use of the page (rule M2). Each use of a page begins with a new generation.
	generation effects.Generation
	refs       uint32 // references: the content of the page is needed
	holds      uint32 // in-flight references: work of this rank uses the page
	// grant is the write grant in force or in quarantine, or 0. Invariant (M1): a page with a write grant is not leased
	// to a reader (LeasePages panics).
	grant      effects.GrantID
	position   uint32       // the index of the page within its write grant
	readLeases uint32       // read grants on the page, in force or in quarantine
	landedFor  landedClass  // the class that the page landed for
	tenant     table.Handle // the row of the tenant that the page counts for; 0: none
	next       uint32       // the next page of the frame: index plus 1; 0: none
	sum        effects.Sum  // the checksum that the content of this generation is to have; 0: none is known
	reserved   bool         // the engine has reserved the page, so its commands may name the page
}

func (p *page) isFree() bool { return p.refs == 0 && p.holds == 0 && p.grant == 0 && p.readLeases == 0 }

// Pool is a set of pages of equal size, with the state of each page and the counts of each fairness class. The methods
// of Pools change the counts and grants that span pools; the methods of Pool change the state of its pages.
type Pool struct {
	id         effects.PoolID // the pool id that each page of the pool carries
	key        string         `snap:"share"` // the configuration key of the pool's size
	index      int            // the index of the pool in Pools.pools
	firstIndex uint32         // the index of its first page; above 0 in a pool that continues the numbers of pool 0
	pages      []page
	freeStack  []uint32 // free pages; the page that was freed last is used first: it is warm in the caches
	// generation is the last generation that was given out. Invariant (M2): generation only grows, so no two uses of a
	// page have the same generation.
	generation effects.Generation
	// freedCount counts the pages and shares that have become available. Within a step it only matters whether the
	// count has grown.
	freedCount uint64 `snap:"skip"`

	usedByClass      []uint32 // by class: pages granted, in quarantine, promised, or (class 0) charged to the engine
	landedByClass    landedCounts
	tenants          tenantUses
	landedByGroup    []landedGroup // by the slot of the group in groups.rows; slots after the last have no pages
	classShare       uint32        // the limit of pages for one peer
	originShare      uint32        // the limit of pages for all peers with one Origin
	tenantShare      uint32        // the limit of pages for one tenant
	engineShare      uint32        // the limit of pages for this rank's engine, which is class 0, where its pages are counted
	openPages        uint32        // pages under write grants, in force or in quarantine
	quarantinedPages uint32        // the part of open whose grant is in quarantine
	leasedPages      uint32        // read grants on pages, in force or in quarantine: a page counts once for each
	promisedPages    uint32        // free pages that are promised to a class (PromisePages)
	claimed          bool          // the pages are the engine's own blocks and are taken only by number (claim.go)
	claimedPages     uint32        // in a claimed pool: pages that are not free
}

func (p *Pool) recycle(index int, cfg PoolConfig, classes int) Pool {
	n := int(cfg.Pages)
	id := effects.PoolID(index)
	if cfg.FirstIndex > 0 {
		id = 0
	}
	e := Pool{
		id: id, key: cfg.Key, index: index, firstIndex: cfg.FirstIndex,
		pages: table.RecycleSlice(p.pages, n), freeStack: table.RecycleSlice(p.freeStack, n), classShare: cfg.ClassShare,
		engineShare: cfg.EngineShare, originShare: cmp.Or(cfg.OriginShare, cfg.Pages), landedByGroup: p.landedByGroup[:0],
		tenantShare: cmp.Or(cfg.TenantShare, cfg.Pages), tenants: p.tenants.recycle(n),
		usedByClass: table.RecycleSlice(p.usedByClass, classes), landedByClass: p.landedByClass.recycle(classes), claimed: cfg.Claimed,
	}
	if e.claimed {
		e.freeStack = e.freeStack[:0]
	}
	for i := range e.freeStack {
		e.freeStack[i] = e.firstIndex + uint32(n-1-i)
	}
	return e
}

// ConfigKey returns the configuration key that sets the pool's size, for texts of refusals.
func (p *Pool) ConfigKey() string { return p.key }

// TotalPages returns the number of pages in the pool.
func (p *Pool) TotalPages() uint32 { return uint32(len(p.pages)) }

// UsedPages returns the number of pages that are in use or promised.
func (p *Pool) UsedPages() uint32 { return p.TotalPages() - p.FreePages() }

// FreePages returns the number of free pages that are not promised to a class.
func (p *Pool) FreePages() uint32 {
	if p.claimed {
		return p.TotalPages() - p.claimedPages
	}
	return uint32(len(p.freeStack)) - p.promisedPages
}

// popFree takes the page that was freed last off the stack and begins a new generation of it. popFree panics if the
// page is in use.
func (p *Pool) popFree() (uint32, *page) {
	i := p.freeStack[len(p.freeStack)-1]
	p.freeStack = p.freeStack[:len(p.freeStack)-1]
	pg := p.pageAt(i)
	if !pg.isFree() {
		panic(fmt.Sprintf("BUG: page %d on the free list is in use", i))
	}
	p.generation++
	pg.generation, pg.sum = p.generation, 0
	return i, pg
}

// freeIfUnused makes page i free if nothing uses the page any more. If the page is the head of a frame, the frame's
// next page loses the reference that bound it, and becomes free in the same way.
func (p *Pool) freeIfUnused(i uint32) {
	for p.pageAt(i).isFree() {
		pg := p.pageAt(i)
		if p.claimed {
			p.claimedPages--
		} else {
			p.freeStack = append(p.freeStack, i)
		}
		p.freedCount++
		p.uncountLanded(pg)
		p.uncountTenant(pg)
		if pg.next == 0 {
			return
		}
		i, pg.next = pg.next-1, 0 // The next page of the frame loses the reference that bound it.
		p.pageAt(i).refs--
	}
}

// Index returns the pool's index among the pools of the rank.
func (p *Pool) Index() int { return p.index }

// FirstIndex returns the index of the pool's first page.
func (p *Pool) FirstIndex() uint32 { return p.firstIndex }

// pageAt returns the state of the page with index i, and hasPage reports whether the pool has a page with an index.
func (p *Pool) pageAt(i uint32) *page { return &p.pages[i-p.firstIndex] }
func (p *Pool) hasPage(index uint32) bool {
	return index >= p.firstIndex && index-p.firstIndex < p.TotalPages()
}

// TakePages takes n free pages, gives each one reference, and appends them to dst. The pages' Length is 0. The caller
// must have checked that n pages are free.
func (p *Pool) TakePages(n uint32, dst []effects.Page) []effects.Page {
	for range n {
		i, pg := p.popFree()
		pg.refs = 1
		dst = append(dst, effects.Page{Pool: p.id, Index: i, Generation: pg.generation})
	}
	return dst
}

// IsLive reports whether the page is in this pool, still has the generation that g names, and has a reference (rule
// M2).
func (p *Pool) IsLive(g effects.Page) bool {
	return g.Pool == p.id && p.hasPage(g.Index) && p.pageAt(g.Index).generation == g.Generation && p.pageAt(g.Index).refs > 0
}

// SumOf returns the checksum that the content of the page is to have, or 0 if none is known.
func (p *Pool) SumOf(g effects.Page) effects.Sum { return p.pageOf(g).sum }

// SetSum records the checksum that the content of the page is to have.
func (p *Pool) SetSum(g effects.Page, sum effects.Sum) { p.pageOf(g).sum = sum }

// ReservePage marks the page as reserved by the engine. Until UnreservePage, commands of the engine may name the page.
// Commands may not name other pages: for example, a page that the engine has handed over to the store is still in use,
// but belongs to the store.
func (p *Pool) ReservePage(g effects.Page) { p.pageOf(g).reserved = true }

// UnreservePage removes the mark of ReservePage, because the page is released or handed over to the store.
// UnreservePage panics if the page is not reserved.
func (p *Pool) UnreservePage(g effects.Page) {
	if !p.pageOf(g).reserved {
		panic(fmt.Sprintf("BUG: page %d is not reserved", g.Index))
	}
	p.pageOf(g).reserved = false
}

// IsReserved reports whether the page is in the generation that g names, referenced, and reserved by the engine.
func (p *Pool) IsReserved(g effects.Page) bool { return p.IsLive(g) && p.pageAt(g.Index).reserved }

// HasWriteGrant reports whether a write grant stands on the page. A peer may then store into the page, so the page must
// not be leased (M1).
func (p *Pool) HasWriteGrant(g effects.Page) bool { return p.pageOf(g).grant != 0 }

// HasHold reports whether the page has an in-flight reference.
func (p *Pool) HasHold(g effects.Page) bool { return p.pageOf(g).holds > 0 }

// pageOf returns the state of the page that g names. pageOf panics if the page is not in this pool or has another
// generation (rule M2).
func (p *Pool) pageOf(g effects.Page) *page {
	if g.Pool != p.id || !p.hasPage(g.Index) {
		panic(fmt.Sprintf("BUG: page %d of pool %d is looked for in pool %d", g.Index, g.Pool, p.index))
	}
	pg := p.pageAt(g.Index)
	if pg.generation != g.Generation {
		panic(fmt.Sprintf("BUG: page %d is in generation %d, used as %d", g.Index, pg.generation, g.Generation))
	}
	return pg
}

// IsEvictable reports whether a single reference is all that keeps the page in use. The owner of that reference may
// drop it, which frees the page.
func (p *Pool) IsEvictable(g effects.Page) bool {
	pg := p.pageOf(g)
	return pg.refs == 1 && pg.holds == 0 && pg.grant == 0 && pg.readLeases == 0
}

// MarkEvictable marks a page as evictable: its owner keeps it only until the memory is needed. Requests that wait for
// memory are tried again. The page, and the pages of its frame, no longer count against the class that they landed for,
// nor for a tenant, because any class can take the pages. MarkEvictable panics if anything but a single reference uses the page.
func (p *Pool) MarkEvictable(g effects.Page) {
	if !p.IsEvictable(g) {
		panic(fmt.Sprintf("BUG: page %d is in use, and was to be spared", g.Index))
	}
	for next := g.Index + 1; next != 0; next = p.pageAt(next - 1).next {
		p.uncountLanded(p.pageAt(next - 1))
		p.uncountTenant(p.pageAt(next - 1))
	}
	p.freedCount++
}

// DropRef drops a reference to the page, which becomes free if nothing else uses it. DropRef panics if the page has no
// reference.
func (p *Pool) DropRef(g effects.Page) {
	pg := p.pageOf(g)
	if pg.refs == 0 {
		panic(fmt.Sprintf("BUG: page %d released twice", g.Index))
	}
	pg.refs--
	p.freeIfUnused(g.Index)
}

// HoldPage adds an in-flight reference: work of this rank (for example a copy) uses the page, so the page does not
// become free before ReleaseHold.
func (p *Pool) HoldPage(g effects.Page) { p.pageOf(g).holds++ }

// ReleaseHold drops an in-flight reference. ReleaseHold panics if the page has none.
func (p *Pool) ReleaseHold(g effects.Page) {
	pg := p.pageOf(g)
	if pg.holds == 0 {
		panic(fmt.Sprintf("BUG: page %d unheld twice", g.Index))
	}
	pg.holds--
	p.freeIfUnused(g.Index)
}

// State is a snapshot of one page, for oracles and tests.
type State struct {
	Generation  effects.Generation
	Refs, Holds uint32
	Loans       uint32          // read grants, in force or in quarantine
	Grant       effects.GrantID // the write grant, or 0
	Quarantined bool            // the write grant is in quarantine
}

// InspectPage returns the state of page i of p.
func (ps *Pools) InspectPage(p *Pool, i uint32) State {
	pg := p.pageAt(i)
	s := State{Generation: pg.generation, Refs: pg.refs, Holds: pg.holds, Loans: pg.readLeases, Grant: pg.grant}
	if g := ps.findGrant(pg.grant); g != nil {
		s.Quarantined = g.quarantined
	}
	return s
}
