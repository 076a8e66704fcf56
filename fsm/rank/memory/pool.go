// Package memory decides who may touch which page until when (rules M1 to M3 of docs/safety.md). A page has references,
// in-flight references (holds), and grants that are in force or in quarantine: one to write, or any number to read.
//
// A caller may rely on this: a page is free exactly when it has none of them; nobody else hands out pages, generations
// or grant ids; no generation and no grant id means two things; and what each fairness class has is counted, in force,
// in quarantine, or landed (FitsShare). What would break that panics.
package memory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

type page struct {
	generation effects.Generation
	refs       uint32
	holds      uint32
	grant      effects.GrantID // the write grant in force or in quarantine
	position   uint32          // the page's place in that grant
	loans      uint32          // the read grants in force or in quarantine
	landed     mine            // who it landed for
	next       uint32          // of its frame: the page behind it, from 1
	reserved   bool            // by the engine, whose commands may name it
}

func (p *page) free() bool { return p.refs == 0 && p.holds == 0 && p.grant == 0 && p.loans == 0 }

// Pool is one pool of equal pages.
type Pool struct {
	id         effects.PoolID // named in each of its pages
	key        string         `snap:"share"` // of the configuration, that says its size
	place      int            // among the pools
	base       uint32         // the number of its first page: it is numbered behind another one, which has the same id
	pages      []page
	stack      []uint32 // free pages; the one freed last is used first, it is warm
	generation effects.Generation
	freed      uint64 `snap:"skip"` // how many pages ever became free; only that it grows matters, within a step

	used        []uint32 // for each class: pages granted or in quarantine
	landed      landed
	share       uint32 // of one peer
	own         uint32 // of our own engine, which is class 0, where it is counted
	open        uint32 // pages under write grants
	quarantined uint32 // those of them whose grant ended
	lent        uint32 // pages under read grants; one counts as often as it is lent
	lentMost    uint32
	kept        uint32 // free pages that are promised
	claimed     bool   // pages are taken by their numbers alone
	taken       uint32 // of one that is: pages that are not free
}

func (p *Pool) emptied(place int, cfg PoolConfig, classes int) Pool {
	n := int(cfg.Pages)
	id := effects.PoolID(place)
	if cfg.Behind > 0 {
		id = 0
	}
	e := Pool{
		id: id, key: cfg.Key, place: place, base: cfg.Behind,
		pages: table.Zeroed(p.pages, n), stack: table.Zeroed(p.stack, n), share: cfg.Share, own: cfg.Own,
		used: table.Zeroed(p.used, classes), landed: p.landed.emptied(classes), claimed: cfg.Claimed,
	}
	if e.claimed {
		e.stack = e.stack[:0]
	}
	for i := range e.stack {
		e.stack[i] = e.base + uint32(n-1-i)
	}
	return e
}

// Key is the configuration's key that says how large the pool is.
func (p *Pool) Key() string { return p.key }

// Total is the number of pages.
func (p *Pool) Total() uint32 { return uint32(len(p.pages)) }

// Taken is the number of pages that are not free, or promised.
func (p *Pool) Taken() uint32 { return p.Total() - p.Free() }

// Free is the number of free pages that nobody is promised.
func (p *Pool) Free() uint32 {
	if p.claimed {
		return p.Total() - p.taken
	}
	return uint32(len(p.stack)) - p.kept
}

func (p *Pool) pop() (uint32, *page) {
	i := p.stack[len(p.stack)-1]
	p.stack = p.stack[:len(p.stack)-1]
	pg := p.at(i)
	if !pg.free() {
		panic(fmt.Sprintf("BUG: page %d on the free list is in use", i))
	}
	p.generation++
	pg.generation = p.generation
	return i, pg
}

func (p *Pool) maybeFree(i uint32) {
	for p.at(i).free() {
		pg := p.at(i)
		if p.claimed {
			p.taken--
		} else {
			p.stack = append(p.stack, i)
		}
		p.freed++
		p.left(pg)
		if pg.next == 0 {
			return
		}
		i, pg.next = pg.next-1, 0 // What is bound behind it goes with it.
		p.at(i).refs--
	}
}

// Place is the pool's place among the pools.
func (p *Pool) Place() int { return p.place }

// Base is the number of its first page.
func (p *Pool) Base() uint32 { return p.base }

// at is the page of a number, and has says whether there is one.
func (p *Pool) at(i uint32) *page     { return &p.pages[i-p.base] }
func (p *Pool) has(index uint32) bool { return index >= p.base && index-p.base < p.Total() }

// Take appends n pages with one reference each to dst. There must be as many.
func (p *Pool) Take(n uint32, dst []effects.Page) []effects.Page {
	for range n {
		i, pg := p.pop()
		pg.refs = 1
		dst = append(dst, effects.Page{Pool: p.id, Index: i, Generation: pg.generation})
	}
	return dst
}

// Lives says whether the page is in this life and referenced.
func (p *Pool) Lives(g effects.Page) bool {
	return g.Pool == p.id && p.has(g.Index) && p.at(g.Index).generation == g.Generation && p.at(g.Index).refs > 0
}

// Reserve notes that the engine has reserved the page. Its commands may name it until Unreserve, and name no other: a
// page that it has handed to the store lives on, and is the store's.
func (p *Pool) Reserve(g effects.Page) { p.of(g).reserved = true }

// Unreserve ends a Reserve: the page is released, or handed over.
func (p *Pool) Unreserve(g effects.Page) {
	if !p.of(g).reserved {
		panic(fmt.Sprintf("BUG: page %d is not reserved", g.Index))
	}
	p.of(g).reserved = false
}

// Reserved reports whether the page is in this life and reserved by the engine.
func (p *Pool) Reserved(g effects.Page) bool { return p.Lives(g) && p.at(g.Index).reserved }

// Written says whether a peer may store into the page: it can be leased to nobody.
func (p *Pool) Written(g effects.Page) bool { return p.of(g).grant != 0 }

// Held says whether anything of ours is working on the page.
func (p *Pool) Held(g effects.Page) bool { return p.of(g).holds > 0 }

func (p *Pool) of(g effects.Page) *page {
	if g.Pool != p.id || !p.has(g.Index) {
		panic(fmt.Sprintf("BUG: page %d of pool %d is looked for in pool %d", g.Index, g.Pool, p.place))
	}
	pg := p.at(g.Index)
	if pg.generation != g.Generation {
		panic(fmt.Sprintf("BUG: page %d is in generation %d, used as %d", g.Index, pg.generation, g.Generation))
	}
	return pg
}

// Evictable says whether nothing but one reference has a page: whoever has that one may give it up, and frees the page.
func (p *Pool) Evictable(g effects.Page) bool {
	pg := p.of(g)
	return pg.refs == 1 && pg.holds == 0 && pg.grant == 0 && pg.loans == 0
}

// Spare notes that whoever has the page keeps it only until somebody wants it. Who waits for memory looks again, and it
// counts no more for the class that it landed for: what anybody can take is no hoard.
func (p *Pool) Spare(g effects.Page) {
	if !p.Evictable(g) {
		panic(fmt.Sprintf("BUG: page %d is in use, and was to be spared", g.Index))
	}
	for next := g.Index + 1; next != 0; next = p.at(next - 1).next {
		p.left(p.at(next - 1))
	}
	p.freed++
}

// Unref drops a reference.
func (p *Pool) Unref(g effects.Page) {
	pg := p.of(g)
	if pg.refs == 0 {
		panic(fmt.Sprintf("BUG: page %d released twice", g.Index))
	}
	pg.refs--
	p.maybeFree(g.Index)
}

// Hold notes that work of ours uses the page: it is not free before Unhold.
func (p *Pool) Hold(g effects.Page) { p.of(g).holds++ }

// Unhold ends a Hold.
func (p *Pool) Unhold(g effects.Page) {
	pg := p.of(g)
	if pg.holds == 0 {
		panic(fmt.Sprintf("BUG: page %d unheld twice", g.Index))
	}
	pg.holds--
	p.maybeFree(g.Index)
}

// State describes one page to oracles.
type State struct {
	Generation  effects.Generation
	Refs, Holds uint32
	Loans       uint32          // read grants, those in quarantine included
	Grant       effects.GrantID // the write grant
	Quarantined bool            // that one is
}

// Inspect returns the state of page i of p.
func (ps *Pools) Inspect(p *Pool, i uint32) State {
	pg := p.at(i)
	s := State{Generation: pg.generation, Refs: pg.refs, Holds: pg.holds, Loans: pg.loans, Grant: pg.grant}
	if g := ps.find(pg.grant); g != nil {
		s.Quarantined = g.quarantined
	}
	return s
}
