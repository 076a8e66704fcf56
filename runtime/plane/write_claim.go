package plane

import (
	"sync/atomic"

	"github.com/kvferry/kvferry/effects"
)

// A WriteClaim is a push that the pool has admitted. At most one push at a time is admitted to a page, so that bytes
// of two pushes never mix in a page.
type WriteClaim struct {
	pool    *Pool
	grantID effects.GrantID
	turn    turn
	peer    effects.Incarnation
	pages   []effects.Page
	corrupt atomic.Uint32 // pages that Verify has refused
}

// ClaimWrite admits a push of peer under a write grant to pages, each of which is to be stored in its full Length.
// Either all pages are admitted or none. The claim keeps the slice. The codes are:
//
//   - OK. The caller must end the claim by a single call of Land.
//   - Withdrawn: the grant has ended, or at least one of the pages has landed.
//   - Refused: another peer has the grant, or a page has another push in flight.
//   - Stale: a page is named in another generation than was granted.
//   - TooLarge: a page is to get more bytes than were granted.
//   - Mismatch: a page is to get fewer bytes than were granted, which would leave old bytes behind the new bytes.
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
			p.unclaimPages(pages[:i])
			return nil, code
		}
		p.pageStates[page.Index].claimed = true
		pages[i].Sum = p.pageStates[page.Index].sum
	}
	return &WriteClaim{pool: p, grantID: id, turn: g.turn, peer: peer, pages: pages}, effects.OK
}

func (p *Pool) checkClaim(id effects.GrantID, page effects.Page) effects.Code {
	if page.Pool != p.id || page.Index >= p.pages {
		return effects.NotFound
	}
	switch s := &p.pageStates[page.Index]; {
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

func (p *Pool) unclaimPages(pages []effects.Page) {
	for _, page := range pages {
		p.pageStates[page.Index].claimed = false
	}
}

// Page returns page i of the claim.
func (c *WriteClaim) Page(i int) effects.Page { return c.pages[i] }

// Len returns the number of pages.
func (c *WriteClaim) Len() int { return len(c.pages) }

// Hold enters page i for a single bounded store and returns the bytes to store into, or nil if the grant was revoked.
// After a successful Hold the caller must call Release soon, and must not store afterwards. The caller must not wait
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
		c.pool.onLastHolderLeft(index)
	}
}

// Verify compares page i, which is stored to its last byte, with the checksum that the grant states. The code is OK,
// Corrupt if the bytes have another checksum, or Withdrawn if the grant was revoked.
func (c *WriteClaim) Verify(i int) effects.Code {
	if c.pool.verifier == nil || c.pages[i].Sum == 0 {
		return effects.OK
	}
	bytes := c.Hold(i)
	if bytes == nil {
		return effects.Withdrawn
	}
	defer c.Release(i)
	if c.pool.verifier.Verify(c.pages[i], bytes) {
		return effects.OK
	}
	c.corrupt.Add(1)
	return effects.Corrupt
}

// Land ends the claim. Pages for which whole is true are closed if the grant still covers the page: nobody can store
// into a closed page any more under this grant. A single Landed reports the closed pages. The remaining pages may be
// claimed again. Land reports whether all pages have landed. No hold of the claim may be in progress.
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
		s := &p.pageStates[page.Index]
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
	p.sink.Post(&effects.Landed{Landing: landing, Grant: c.grantID, Peer: c.peer, Pages: landed, Complete: complete,
		Corrupt: c.corrupt.Load()})
	return complete
}
