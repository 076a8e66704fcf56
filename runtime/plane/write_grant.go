package plane

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// A writeGrant is a peer's permission to store into pages. The pool keeps the grant until all pages have landed, or
// until the grant is revoked and no holder is left.
type writeGrant struct {
	peer      effects.Incarnation
	turn      turn     // the turn in which the fences of the pages are open
	pages     []uint32 // all pages of the grant
	openPages int      // the number of pages that have not landed
	// pagesHeld counts the pages that a holder had entered when the grant was revoked and has not left yet. Revoked
	// follows when the count becomes zero. Before Revoke the count is zero.
	pagesHeld int
}

// A pageState describes the grants of a page. The zero value means that the page has no grant.
//
// Invariant: a page has a write grant (grant or revokingGrant is set) or read leases (readLeases > 0), never both (M1).
type pageState struct {
	grant      effects.GrantID
	generation effects.Generation
	length     uint32
	sum        effects.Sum // the checksum of what is to be stored; 0: none was stated
	claimed    bool        // a push to the page is in flight
	// revokingGrant is the revoked grant that waits for this page's holders to leave; zero if there is none.
	revokingGrant effects.GrantID
	readLeases    uint32 // read leases that cover the page, including those whose revocation is not complete
}

// Grant gives a peer the right to store into pages, after publishing the generations; or, if e.Read is set, the right
// to read pages. The grant is in force when Grant returns. A grant that names no peer admits nothing, because nobody
// could use the grant on a fenced plane.
func (p *Pool) Grant(e *effects.Grant) {
	if e.Read {
		p.grantRead(e)
		return
	}
	p.Publish(e.Pages)
	if e.Peer == (effects.Incarnation{}) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mustBeNewGrant(e.ID)
	if p.lastTurn++; p.lastTurn > turnMask {
		panic("BUG: a pool has issued more write grants than the turns of its fences can distinguish")
	}
	g := &writeGrant{peer: e.Peer, turn: p.lastTurn, pages: make([]uint32, 0, len(e.Pages)), openPages: len(e.Pages)}
	for _, page := range e.Pages {
		if !p.fences[page.Index].open(g.turn) {
			panic(fmt.Sprintf("BUG: write grant %[2]d covers page %[1]d, while write grant %[3]d of that page is in force or "+
				"in quarantine",
				page.Index, e.ID, p.pageStates[page.Index].grant))
		}
		p.pageStates[page.Index] = pageState{grant: e.ID, generation: page.Generation, length: page.Length, sum: page.Sum}
		g.pages = append(g.pages, page.Index)
	}
	p.grants[e.ID] = g
}

func (p *Pool) mustBeNewGrant(id effects.GrantID) {
	switch {
	case id == 0:
		panic("BUG: a grant has no id")
	case p.grants[id] != nil || p.leases[id] != nil:
		panic(fmt.Sprintf("BUG: grant id %d is already in use", id))
	}
}

// Revoke takes a grant back. One Revoked is posted when nothing can touch the pages of the grant any more, and no read
// of these pages can succeed any more: at once if no hold is in progress, otherwise when the last holder leaves.
// Because holds are bounded, Revoke always completes (M3).
func (p *Pool) Revoke(id effects.GrantID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.leases[id]; l != nil {
		p.revokeRead(id, l)
		return
	}
	g := p.grants[id]
	// All pages of the grant have landed, or the grant admitted nothing.
	if g == nil {
		p.sink.Post(&effects.Revoked{Grant: id})
		return
	}
	for _, index := range g.pages {
		if p.pageStates[index].grant != id {
			continue // The page has landed.
		}
		p.pageStates[index] = pageState{}
		if p.fences[index].close() > 0 {
			p.pageStates[index].revokingGrant = id
			g.pagesHeld++
		}
	}
	g.openPages = 0
	p.finishRevoke(id, g)
}

// RevokeAll revokes every grant and every read lease that stands. The driver calls it when the machine has failed and
// cannot do so.
func (p *Pool) RevokeAll() {
	p.mu.Lock()
	ids := slices.Collect(maps.Keys(p.grants))
	for id, l := range p.leases {
		if !l.revoked {
			ids = append(ids, id)
		}
	}
	p.mu.Unlock()
	for _, id := range ids {
		p.Revoke(id)
	}
}

// onLastHolderLeft is called when the last holder has left a page and the page's grant was revoked meanwhile.
func (p *Pool) onLastHolderLeft(index uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.pageStates[index].revokingGrant
	if id == 0 {
		return
	}
	p.pageStates[index].revokingGrant = 0
	g := p.grants[id]
	g.pagesHeld--
	p.finishRevoke(id, g)
}

func (p *Pool) finishRevoke(id effects.GrantID, g *writeGrant) {
	if g.pagesHeld == 0 {
		delete(p.grants, id)
		p.sink.Post(&effects.Revoked{Grant: id})
	}
}
