package plane

import "github.com/kvferry/kvferry/effects"

// A WriteClaim is one push that the pool has admitted. At most one push at a time is admitted to a page, so that
// bytes of two pushes never mix in it.
type WriteClaim struct {
	pool    *Pool
	grantID effects.GrantID
	turn    turn
	peer    effects.Incarnation
	pages   []effects.Page
}

// ClaimWrite admits a push of peer under a write grant to pages, each of which is to be stored in its full Length. It
// admits all pages or none, keeps the slice, and returns one of these codes:
//
//   - OK. The caller must end the claim by one call of Land.
//   - Withdrawn: the grant has ended, or one of the pages has landed.
//   - Refused: another peer has the grant, or another push to one of the pages is in flight.
//   - Stale: a page is named in another generation than the granted one.
//   - TooLarge: a page is to get more bytes than were granted.
//   - Mismatch: a page is to get fewer bytes than were granted, which would leave old bytes behind the new ones.
//   - NotFound: the pool has no such page.
func (p *Pool) ClaimWrite(
	peer effects.Incarnation, id effects.GrantID, pages []effects.Page,
) (*WriteClaim, effects.Code) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.grants[id]
	if g == nil || g.openPages == 0 {
		return nil, effects.Withdrawn
	}
	if g.peer != peer {
		return nil, effects.Refused
	}
	for i, page := range pages {
		if code := p.checkClaim(id, page); code != effects.OK {
			p.unclaim(pages[:i])
			return nil, code
		}
		p.states[page.Index].claimed = true
	}
	return &WriteClaim{pool: p, grantID: id, turn: g.turn, peer: peer, pages: pages}, effects.OK
}

func (p *Pool) checkClaim(id effects.GrantID, page effects.Page) effects.Code {
	if page.Pool != p.id || page.Index >= p.pages {
		return effects.NotFound
	}
	switch s := &p.states[page.Index]; {
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
		p.states[page.Index].claimed = false
	}
}

// Page returns page i of the claim.
func (c *WriteClaim) Page(i int) effects.Page { return c.pages[i] }

// Len returns the number of pages.
func (c *WriteClaim) Len() int { return len(c.pages) }

// Hold enters page i for one bounded store and returns the bytes to store into. It returns nil if the grant was
// revoked. After a successful Hold the caller must call Release soon, and must not store afterwards. It must not wait
// for a peer in between, because Revoke completes only when all holders have left (M3).
func (c *WriteClaim) Hold(i int) []byte {
	page := c.pages[i]
	if !c.pool.fences[page.Index].hold(c.turn) {
		return nil
	}
	return c.pool.wholePage(page.Index)[:page.Length]
}

// Release leaves page i, which Hold has entered.
func (c *WriteClaim) Release(i int) {
	index := c.pages[i].Index
	if c.pool.fences[index].release() {
		c.pool.lastHolderLeft(index)
	}
}

// Land ends the claim. It closes the pages for which whole is true and whose grant still stands: nobody can store
// into them any more under this grant. One Landed reports them. The other pages may be claimed again. Land reports
// whether all pages have landed. No hold of the claim may be in progress.
//
// Landed is posted under the pool's lock. A Revoked that is posted later was therefore decided later, and never ends
// a grant while a Landed that reports pages of that grant is still to come.
func (c *WriteClaim) Land(landing effects.Landing, whole []bool) (complete bool) {
	p := c.pool
	landed := make([]effects.Page, 0, len(c.pages))
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.grants[c.grantID]
	for i, page := range c.pages {
		s := &p.states[page.Index]
		if s.grant != c.grantID {
			continue // The grant was revoked meanwhile, and the page may belong to another grant by now.
		}
		if s.claimed = false; !whole[i] || !p.fences[page.Index].land(c.turn) {
			continue
		}
		*s = pageState{}
		g.openPages--
		landed = append(landed, page)
	}
	if g != nil && g.openPages == 0 && g.pagesHeld == 0 {
		delete(p.grants, c.grantID)
	}
	complete = len(landed) == len(c.pages)
	p.sink.Post(&effects.Landed{Landing: landing, Grant: c.grantID, Peer: c.peer, Pages: landed, Complete: complete})
	return complete
}
