package plane

import "github.com/kvferry/kvferry/effects"

// A Claim is one push that the pool let in. At any time at most one push is under way to a page, so
// bytes of two pushes never mix in it.
type Claim struct {
	pool  *Pool
	grant effects.GrantID
	turn  turn
	peer  effects.Incarnation
	pages []effects.Page
}

// Claim lets in a push of peer under a grant to pages, each to be stored in its full Length. It takes
// all or none. Codes: OK; Withdrawn: the grant is over, or a page of it has landed; Refused: another
// peer's grant, or a push to the page is under way; Stale: another generation; TooLarge: beyond what was
// granted; Mismatch: less than what was granted, which would leave old bytes behind the new ones;
// NotFound: no such page. Claim keeps pages. Every claim ends in one Land.
func (p *Pool) Claim(peer effects.Incarnation, id effects.GrantID, pages []effects.Page) (*Claim, effects.Code) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.grants[id]
	if g == nil || g.open == 0 {
		return nil, effects.Withdrawn
	}
	if g.peer != peer {
		return nil, effects.Refused
	}
	for i, page := range pages {
		if code := p.claimable(id, page); code != effects.OK {
			p.unclaim(pages[:i])
			return nil, code
		}
		p.slots[page.Index].claimed = true
	}
	return &Claim{pool: p, grant: id, turn: g.turn, peer: peer, pages: pages}, effects.OK
}

func (p *Pool) claimable(id effects.GrantID, page effects.Page) effects.Code {
	if page.Pool != p.id || page.Index >= p.pages {
		return effects.NotFound
	}
	switch s := &p.slots[page.Index]; {
	case s.grant != id:
		return effects.Withdrawn
	case s.generation != page.Generation:
		return effects.Stale
	case page.Length > s.length:
		return effects.TooLarge
	case page.Length < s.length:
		return effects.Mismatch
	case s.claimed:
		return effects.Refused
	}
	return effects.OK
}

func (p *Pool) unclaim(pages []effects.Page) {
	for _, page := range pages {
		p.slots[page.Index].claimed = false
	}
}

// Page is page i of the claim.
func (c *Claim) Page(i int) effects.Page { return c.pages[i] }

// Len is the number of pages.
func (c *Claim) Len() int { return len(c.pages) }

// Hold enters page i for one bounded store and returns the bytes to store into; nil says that the
// grant was taken back. Whoever got bytes calls Unhold soon and stores nothing afterwards. In a hold
// nobody waits for a peer.
func (c *Claim) Hold(i int) []byte {
	page := c.pages[i]
	if !c.pool.words[page.Index].hold(c.turn) {
		return nil
	}
	return c.pool.bytes(page.Index)[:page.Length]
}

// Unhold leaves page i.
func (c *Claim) Unhold(i int) {
	index := c.pages[i].Index
	if c.pool.words[index].unhold() {
		c.pool.left(index)
	}
}

// Land ends the claim. Pages for which whole is true, and whose grant still stands, are closed for good
// and reported by one Landed; the others may be claimed again. Land reports whether all landed. No hold
// may be in progress.
//
// Landed is posted under the pool's lock: a Revoked that is posted later was decided later, so it never
// speaks of pages that a Landed still to come says are whole.
func (c *Claim) Land(landing effects.Landing, whole []bool) (complete bool) {
	p := c.pool
	landed := make([]effects.Page, 0, len(c.pages))
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.grants[c.grant]
	for i, page := range c.pages {
		s := &p.slots[page.Index]
		if s.grant != c.grant {
			continue // Revoked meanwhile; the page may belong to another by now.
		}
		if s.claimed = false; !whole[i] || !p.words[page.Index].land(c.turn) {
			continue
		}
		*s = slot{}
		g.open--
		landed = append(landed, page)
	}
	if g != nil && g.open == 0 && g.leaving == 0 {
		delete(p.grants, c.grant)
	}
	complete = len(landed) == len(c.pages)
	p.sink.Post(&effects.Landed{Landing: landing, Grant: c.grant, Peer: c.peer, Pages: landed, Complete: complete})
	return complete
}
