package sim

import (
	"github.com/kvferry/kvferry/effects"
)

// A loan is what is known of a grant that lets pages be loaded. It is over when its owner was
// told that nothing can load them any more (Revoked); on a leased plane also when its reader
// said so, or when its time is over, if its reader keeps to leases.
type loan struct {
	put     effects.Ticket // whose pages they are; 0 in tests
	pull    [16]byte       // what the offer is called; zero before it was made
	began   effects.Time   // on its owner's clock
	held    []stamp        // what each page held, by its first part
	said    bool           // its reader said that it has ended
	came    int            // how often it was offered to its reader
	words   int            // of its end, that a transport took
	kept    bool           // its reader said that it keeps it for later
	late    bool           // its reader refused it as it came too late
	heard   bool           // and its owner's machine was told
	revoked bool           // it was told so
}

// lend carries out a Grant to read: the pages are what they were.
func (w *world) lend(n *node, e *effects.Grant) {
	g := w.stock.grants.one(grant{id: e.ID, peer: e.Peer, read: true, pages: w.stock.spans.keep(e.Pages),
		ends: w.clock(n).Add(n.pool.reads), loan: loan{began: w.clock(n)}})
	w.oracles.onLend(n, g)
	if w.failure != nil {
		return
	}
	n.grants[e.ID] = g
	n.pool.lent = append(n.pool.lent, g)
	w.result.Grants++
}

// standing says whether pages of a loan may still be loaded, as far as its owner can know.
func (w *world) standing(n *node, g *grant) bool {
	switch {
	case g.loan.revoked:
		return false
	case !w.plan.Leased:
		return true
	}
	return !g.loan.heard && !g.loan.late && (g.bearer() || w.clock(n) < g.ends)
}

// lentMax is how many pages of a sender may be lent at a time: its high-water mark.
func (w *world) lentMax(n *node) int {
	return int(uint64(len(n.pool.pages)) * uint64(1_000_000-w.source.Bounds.ReservePPM) / 1_000_000)
}

// grant finds a grant, of whatever life: those of a dead owner still lie in its memory as they were.
func (p *pool) grant(id effects.GrantID) *grant {
	if p.life == p.node.life {
		return p.node.grants[id]
	}
	return p.past[id]
}

// loan finds one to read.
func (p *pool) loan(id effects.GrantID) *grant {
	if g := p.grant(id); g != nil && g.read {
		return g
	}
	return nil
}
