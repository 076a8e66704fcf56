package world

import (
	"github.com/kvferry/kvferry/effects"
)

// A loan is what is known of a grant that lets pages be loaded. It is over when its owner was
// told that nothing can load them any more (Revoked); on a leased plane also when its reader
// said so, or when its time is over, if its reader keeps to leases.
type loan struct {
	Put     effects.Ticket // whose pages they are; 0 in tests
	Pull    [16]byte       // what the offer is called; zero before it was made
	Began   effects.Time   // on its owner's clock
	Held    []Stamp        // what each page held, by its first part
	Said    bool           // its reader said that it has ended
	Came    int            // how often it was offered to its reader
	Words   int            // of its end, that a transport took
	Asked   bool           // somebody asked for it: nobody put the pages
	Kept    bool           // its reader said that it keeps it for later
	Late    bool           // its reader refused it as it came too late
	Heard   bool           // and its owner's machine was told
	Revoked bool           // it was told so
}

// lend carries out a Grant to read: the pages are what they were.
func (n *Node) lend(w *World, e *effects.Grant) {
	g := w.Stock.grants.One(Grant{ID: e.ID, Peer: e.Peer, Read: true, Pages: w.Stock.Spans.Keep(e.Pages),
		Ends: w.Clock(n).Add(n.Pool.reads), Loan: loan{Began: w.Clock(n)}})
	OnLending.Report(&w.Panel, n.ID, Lending{n, g})
	if w.Failure != nil {
		return
	}
	n.Grants[e.ID] = g
	n.Pool.Lent = append(n.Pool.Lent, g)
	w.Result.Grants++
}

// Standing says whether pages of a loan may still be loaded, as far as its owner can know.
func (w *World) Standing(n *Node, g *Grant) bool {
	switch {
	case g.Loan.Revoked:
		return false
	case !w.Setting.Leased:
		return true
	}
	return !g.Loan.Heard && !g.Loan.Late && (g.Bearer() || w.Clock(n) < g.Ends)
}

// LentMax is how many pages of a sender may be lent at a time: its high-water mark.
func (w *World) LentMax(n *Node) int {
	return int(uint64(len(n.Pool.Pages)) * uint64(1_000_000-w.Source.Bounds.ReservePPM) / 1_000_000)
}

// Grant finds a grant, of whatever life: those of a dead owner still lie in its memory as they were.
func (p *Pool) Grant(id effects.GrantID) *Grant {
	if p.Life == p.Node.Life {
		return p.Node.Grants[id]
	}
	return p.past[id]
}

// Loan finds one to read.
func (p *Pool) Loan(id effects.GrantID) *Grant {
	if g := p.Grant(id); g != nil && g.Read {
		return g
	}
	return nil
}
