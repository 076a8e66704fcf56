package world

import (
	"github.com/kvferry/kvferry/effects"
)

// A readLease is the record of a read lease. The lease is over when the owner was notified that nothing can load the
// pages any more (field Revoked). On a leased plane the lease is also over when the reader has sent the done message,
// or when the lease has expired, provided that the reader stops by itself when a lease ends.
type loan struct {
	Put     effects.Ticket // the command that put the pages; 0 in tests
	Pull    [16]byte       // the id of the offer; zero before the offer was made
	Began   effects.Time   // on the owner's clock
	Held    []Stamp        // the first stamp of each page at that time
	Said    bool           // the reader has sent the done message
	Came    int            // number of offers to the reader
	Words   int            // number of done messages that a transport accepted
	Asked   bool           // a peer requested the pages; no command put them
	Kept    bool           // the reader has reported that the offer is kept for later
	Late    bool           // the reader refused the offer as too late
	Heard   bool           // the owner's machine has received the done message
	Revoked bool           // the owner's machine was notified of the revocation
}

// leasePages carries out an [effects.Grant] for reading, which does not change the pages.
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

// Standing reports whether the pages of a read lease may still be loaded, as far as the owner can know.
func (w *World) Standing(n *Node, g *Grant) bool {
	switch {
	case g.Loan.Revoked:
		return false
	case !w.Setting.Leased:
		return true
	}
	return !g.Loan.Heard && !g.Loan.Late && (g.Bearer() || w.Clock(n) < g.Ends)
}

// LentMax returns the maximum number of a sender's pages that may be leased at a time: the high-water mark.
func (w *World) LentMax(n *Node) int {
	return int(uint64(len(n.Pool.Pages)) * uint64(1_000_000-w.Source.Bounds.ReservePPM) / 1_000_000)
}

// Grant returns a grant of the pool's incarnation. The grants of an owner that has died are still in its memory
// unchanged.
func (p *Pool) Grant(id effects.GrantID) *Grant {
	if p.Life == p.Node.Life {
		return p.Node.Grants[id]
	}
	return p.past[id]
}

// Loan returns a read lease, or nil.
func (p *Pool) Loan(id effects.GrantID) *Grant {
	if g := p.Grant(id); g != nil && g.Read {
		return g
	}
	return nil
}
