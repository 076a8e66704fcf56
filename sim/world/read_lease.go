package world

import (
	"github.com/kvferry/kvferry/effects"
)

// A readLease is the record of a read lease. The lease is over when the owner was notified that nothing can load the
// pages any more (field Revoked). On a leased plane the lease is also over when the reader has sent the done message,
// or when the lease has expired, provided that the reader stops by itself when a lease ends.
type readLease struct {
	PutTicket    effects.Ticket // the command that put the pages; 0 in tests
	OfferID      [16]byte       // the id of the offer; zero before the offer was made
	GrantedAt    effects.Time   // on the owner's clock
	FirstStamps  []Stamp        // the first stamp of each page at that time
	DoneSent     bool           // the reader has sent the done message
	OfferCount   int            // number of offers to the reader
	SentCount    int            // number of offers that the owner's machine has sent
	DoneCount    int            // number of done messages that a transport accepted
	OnRequest    bool           // a peer requested the pages; no command put them
	OfferKept    bool           // the reader has reported that the offer is kept for later
	RefusedLate  bool           // the reader refused the offer as too late
	DoneReceived bool           // the owner's machine has received the done message
	Revoked      bool           // the owner's machine was notified of the revocation
}

// leasePages carries out an [effects.Grant] for reading, which does not change the pages.
func (n *Node) leasePages(w *World, e *effects.Grant) {
	g := w.Arenas.grants.AllocCopy(Grant{ID: e.ID, Peer: e.Peer, Read: true, Pages: w.Arenas.EffectPages.CopySlice(e.Pages),
		ExpiresAt: w.ReadClock(n).Add(n.Pool.readTime), Lease: readLease{GrantedAt: w.ReadClock(n)}})
	OnLeasingPages.Report(&w.Panel, n.ID, LeasingPages{n, g})
	if w.Failure != nil {
		return
	}
	n.Grants[e.ID] = g
	n.Pool.ReadLeases = append(n.Pool.ReadLeases, g)
	w.Result.Grants++
}

// IsLeaseLive reports whether the pages of a read lease may still be loaded, as far as the owner can know.
func (w *World) IsLeaseLive(n *Node, g *Grant) bool {
	switch {
	case g.Lease.Revoked:
		return false
	case !w.Conditions.Leased:
		return true
	}
	return !g.Lease.DoneReceived && !g.Lease.RefusedLate && (g.IsBearer() || w.ReadClock(n) < g.ExpiresAt)
}

// LeasedPagesMax returns the maximum number of a sender's pages that may be leased at a time: the high-water mark.
func (w *World) LeasedPagesMax(n *Node) int {
	return int(uint64(len(n.Pool.Pages)) * uint64(1_000_000-w.SourcePlan.Bounds.ReservePPM) / 1_000_000)
}

// FindGrant returns a grant of the pool's incarnation. The grants of an owner that has died are still in its memory
// unchanged.
func (p *Pool) FindGrant(id effects.GrantID) *Grant {
	if p.Incarnation == p.Node.Incarnation {
		return p.Node.Grants[id]
	}
	return p.pastGrants[id]
}

// FindReadLease returns a read lease, or nil.
func (p *Pool) FindReadLease(id effects.GrantID) *Grant {
	if g := p.FindGrant(id); g != nil && g.Read {
		return g
	}
	return nil
}
