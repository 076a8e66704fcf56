package plane

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/effects"
)

// A lending is one grant to read, as the pool keeps it until it is revoked.
type lending struct {
	peer    effects.Incarnation
	pages   []effects.Page // by index
	revoked bool
	// gate is the fence under which this process reads the pages for the peer. Pages have no part in it: many
	// may read one, and nobody stores.
	gate gate
}

// page is the page of that index, if it is lent.
func (l *lending) page(index uint32) (effects.Page, bool) {
	i, ok := slices.BinarySearchFunc(l.pages, index,
		func(p effects.Page, index uint32) int { return cmp.Compare(p.Index, index) })
	if !ok {
		return effects.Page{}, false
	}
	return l.pages[i], true
}

// lend lets a peer read pages, in the life that they are in. Any number of grants to read may cover a page.
// As with grants to store, one without a peer opens nothing.
func (p *Pool) lend(e *effects.Grant) {
	if e.Peer == (effects.Incarnation{}) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mustBeNew(e.ID)
	l := &lending{peer: e.Peer, pages: slices.Clone(e.Pages)}
	slices.SortFunc(l.pages, func(a, b effects.Page) int { return cmp.Compare(a.Index, b.Index) })
	for _, page := range l.pages {
		p.mustHave(page)
		switch s := &p.slots[page.Index]; {
		case s.grant != 0 || s.leaving != 0:
			panic(fmt.Sprintf("BUG: page %d was granted to %d to be read while it is granted to %d or not yet revoked",
				page.Index, e.ID, max(s.grant, s.leaving)))
		case p.table[page.Index] != uint64(page.Generation):
			panic(fmt.Sprintf("BUG: page %d was granted to be read in generation %d; it is in %d",
				page.Index, page.Generation, p.table[page.Index]))
		}
		p.slots[page.Index].lent++
		p.reads.lend(page.Index, max(page.Length, p.reads.lent(page.Index)))
	}
	p.lendings[e.ID] = l
	p.reads.issue(e.ID, e.Peer)
}

// call ends a grant to read. Peers that read by themselves are stopped by the permit, wherever they are just then, even
// if they are frozen; what is waited for are holds of this process, and they are short.
func (p *Pool) call(id effects.GrantID, l *lending) {
	l.revoked = true
	p.reads.withdraw(id)
	if l.gate.close() == 0 {
		p.called(id, l)
	}
}

func (p *Pool) called(id effects.GrantID, l *lending) {
	for _, page := range l.pages {
		s := &p.slots[page.Index]
		if s.lent--; s.lent == 0 {
			p.reads.lend(page.Index, 0)
		}
	}
	delete(p.lendings, id)
	p.sink.Post(&effects.Revoked{Grant: id})
}

// A Loan is one read that the pool let in: of a peer to which this process must send the bytes.
type Loan struct {
	pool  *Pool
	grant effects.GrantID
	under *lending
	pages []effects.Page
}

// Loan lets in a read of peer under a grant, of Length bytes of each page. All or none. Codes: OK; Withdrawn:
// the grant is over, or does not cover a page; Refused: another peer's grant; Stale: another generation; TooLarge:
// beyond what was granted; NotFound: no such page. Loan keeps pages. There may be any number at a time.
func (p *Pool) Loan(peer effects.Incarnation, id effects.GrantID, pages []effects.Page) (*Loan, effects.Code) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lendings[id]
	if l == nil || l.revoked {
		return nil, effects.Withdrawn
	}
	if l.peer != peer {
		return nil, effects.Refused
	}
	for _, page := range pages {
		if page.Pool != p.id || page.Index >= p.pages {
			return nil, effects.NotFound
		}
		switch lent, ok := l.page(page.Index); {
		case !ok:
			return nil, effects.Withdrawn
		case lent.Generation != page.Generation:
			return nil, effects.Stale
		case page.Length > lent.Length:
			return nil, effects.TooLarge
		}
	}
	return &Loan{pool: p, grant: id, under: l, pages: pages}, effects.OK
}

// Hold returns page i, to be read in one bounded step; nil says that the grant was taken back. Whoever got bytes calls
// Unhold soon and looks at them no more afterwards. In a hold nobody waits for a peer.
func (l *Loan) Hold(i int) []byte {
	if !l.under.gate.hold() {
		return nil
	}
	page := l.pages[i]
	return l.pool.bytes(page.Index)[:page.Length]
}

// Unhold leaves a page.
func (l *Loan) Unhold() {
	if !l.under.gate.unhold() {
		return
	}
	// The last one has left a grant that was revoked meanwhile.
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.pool.called(l.grant, l.under)
}
