package plane

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// A grant is one permission to store, as the pool keeps it until all its pages landed or it is revoked.
type grant struct {
	peer  effects.Incarnation
	turn  turn     // in the fences of its pages
	pages []uint32 // all pages it was given for
	open  int      // how many of them have not landed
	// leaving counts pages with a holder inside when the grant was revoked. Revoked follows when the
	// last has left. Used after Revoke only.
	leaving int
}

// A slot says what one page is granted for. All zero: for nothing.
type slot struct {
	grant      effects.GrantID
	generation effects.Generation
	length     uint32
	claimed    bool // a push is under way to it
	// leaving is the revoked grant that waits for this page's holders; zero if none does.
	leaving effects.GrantID
	lent    uint32 // how many grants to read cover it, those included that are not yet Revoked
}

// Grant lets a peer store into pages, and publishes their generations first; or lets it read them. In force when it
// returns. A grant without a peer opens nothing: nobody on a fenced plane could present it.
func (p *Pool) Grant(e *effects.Grant) {
	if e.Read {
		p.lend(e)
		return
	}
	p.Publish(e.Pages)
	if e.Peer == (effects.Incarnation{}) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mustBeNew(e.ID)
	if p.turns++; p.turns > turnMask {
		panic("BUG: a pool has given more grants than its fences can tell apart")
	}
	g := &grant{peer: e.Peer, turn: p.turns, pages: make([]uint32, 0, len(e.Pages)), open: len(e.Pages)}
	for _, page := range e.Pages {
		if !p.words[page.Index].open(g.turn) {
			panic(fmt.Sprintf("BUG: page %d was granted to %d while it is granted to %d or not yet revoked",
				page.Index, e.ID, p.slots[page.Index].grant))
		}
		p.slots[page.Index] = slot{grant: e.ID, generation: page.Generation, length: page.Length}
		g.pages = append(g.pages, page.Index)
	}
	p.grants[e.ID] = g
}

func (p *Pool) mustBeNew(id effects.GrantID) {
	switch {
	case id == 0:
		panic("BUG: a grant has no id")
	case p.grants[id] != nil || p.lendings[id] != nil:
		panic(fmt.Sprintf("BUG: grant %d was given twice", id))
	}
}

// Revoke takes a grant back and posts one Revoked when nothing can touch its pages any more, or deliver what it reads
// of them: at once if no hold is in progress, else when the last one leaves. Holds are bounded, so it always ends.
func (p *Pool) Revoke(id effects.GrantID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lendings[id]; l != nil {
		p.call(id, l)
		return
	}
	g := p.grants[id]
	if g == nil { // All its pages landed, or it opened nothing.
		p.sink.Post(&effects.Revoked{Grant: id})
		return
	}
	for _, index := range g.pages {
		if p.slots[index].grant != id {
			continue // Landed.
		}
		p.slots[index] = slot{}
		if p.words[index].close() > 0 {
			p.slots[index].leaving = id
			g.leaving++
		}
	}
	g.open = 0
	p.maybeRevoked(id, g)
}

// Retract revokes every grant that stands, those to read included, for a machine that will not.
func (p *Pool) Retract() {
	p.mu.Lock()
	ids := slices.Collect(maps.Keys(p.grants))
	for id, l := range p.lendings {
		if !l.revoked {
			ids = append(ids, id)
		}
	}
	p.mu.Unlock()
	for _, id := range ids {
		p.Revoke(id)
	}
}

// left is called when the last holder has left a page that was closed under it.
func (p *Pool) left(index uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.slots[index].leaving
	if id == 0 {
		return
	}
	p.slots[index].leaving = 0
	g := p.grants[id]
	g.leaving--
	p.maybeRevoked(id, g)
}

func (p *Pool) maybeRevoked(id effects.GrantID, g *grant) {
	if g.leaving == 0 {
		delete(p.grants, id)
		p.sink.Post(&effects.Revoked{Grant: id})
	}
}
