package world

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// Grant is the driver's record of an [effects.Grant]: a write grant or a read lease.
type Grant struct {
	ID    effects.GrantID
	Peer  effects.Incarnation
	Read  bool // a read lease; otherwise the pages may be stored into
	Pages []effects.Page
	// closed marks pages that have landed and were reported. Invariant: no store is made to a closed page (M1).
	closed  []bool
	claimed []bool // fenced planes: a push to the page is in flight
	// Holds is the number of copies that are in the middle of a page. Invariant: a revocation on a fenced plane
	// completes only when it is 0 (M3).
	Holds    int
	Revoking bool
	Gone     bool // revoked; on leased planes the mapping is destroyed

	Ends      effects.Time // on the owner's clock
	Believed  effects.Time // the end that the lease holder may assume, on the holder's clock
	Committed bool         // the initiator's commit was accepted
	Late      bool         // the commit arrived after the end
	Loan      loan         // of a read lease
	Job       int          `snap:"skip"` // of a write grant: the job that it serves, from 1
	Shared    []uint32     `snap:"skip"` // of a grant under which a peer was asked to write: the key for each page
}

// publish carries out an [effects.Publish].
func (n *Node) publish(w *World, pages []effects.Page) {
	OnPublishing.Report(&w.Panel, n.ID, Publishing{n, pages})
	n.makeKnown(w, pages)
}

// makeKnown shows the generation of pages to all peers that look at the pages.
func (n *Node) makeKnown(w *World, pages []effects.Page) {
	for _, p := range pages {
		n.Pool.Pages[p.Index].Generation = p.Generation
	}
}

// grantPages carries out an [effects.Grant].
func (n *Node) grantPages(w *World, e *effects.Grant) {
	if e.Read {
		n.lend(w, e)
		return
	}
	OnGranting.Report(&w.Panel, n.ID, Granting{n, e})
	if w.Failure != nil {
		return
	}
	n.makeKnown(w, e.Pages)
	n.Grants[e.ID] = w.Stock.grants.One(Grant{ID: e.ID, Peer: e.Peer, Pages: w.Stock.Spans.Keep(e.Pages),
		closed: w.Stock.Flags.Take(len(e.Pages)), claimed: w.Stock.Flags.Take(len(e.Pages)),
		Ends: w.Clock(n).Add(n.Pool.writes)})
	w.Result.Grants++
}

// revoke carries out an [effects.Revoke].
func (n *Node) revoke(w *World, e *effects.Revoke) {
	g := n.Grants[e.Grant]
	if g == nil || g.Revoking {
		w.Fail("contract", "node %d revokes grant %d, which it does not have or has revoked", n.It(), n.ItsGrant(e.Grant))
		return
	}
	g.Revoking = true
	if !w.Setting.Leased {
		if g.Holds == 0 {
			g.revokeEnds(w, n)
		}
		return
	}
	if w.Setting.Communicators {
		g.expel(w, n)
		return
	}
	d := n.draw(w, draw.Revoke)
	at := d.Heavy(w.Setting.Net)
	if w.Struck(plan.FaultRevokeHeldUp, n.Subject(), n.ordinals[draw.Revoke]) {
		at += effects.Duration(int64(w.Setting.Faulty) + int64(effects.Second))
	}
	w.ForNode(n, at, Delivery{Kind: KindUnmap, A: uint64(e.Grant)})
}

// revokeEnds completes a revocation on a fenced plane. The report comes after the reports of what landed before.
func (g *Grant) revokeEnds(w *World, n *Node) {
	for _, t := range w.Going.Transfers.Some {
		if t.Asked && !t.Ended && t.Remote == n.Pool && t.Grant == g.ID {
			switch {
			case !t.Read:
				t.stop = effects.Withdrawn
				t.endPush(w)
			case t.served:
				t.stop = effects.Withdrawn
				t.endRead(w)
			}
		}
	}
	g.Gone = true
	n.inOrder(w, n.draw(w, draw.Revoke).Heavy(w.Setting.Net), Delivery{Kind: KindRevoked, A: uint64(g.ID)})
}

// unmap destroys the mapping behind a grant of a leased plane, which completes the revocation.
func (n *Node) unmap(w *World, id effects.GrantID) {
	if g := n.Grants[id]; !g.Gone {
		g.Gone = true
		OnUnmapped.Report(&w.Panel, n.ID, Unmapped{n, id})
		n.inOrder(w, 0, Delivery{Kind: KindRevoked, A: uint64(id)})
	}
}

// Bearer reports whether the grant is a bearer grant, which any peer that knows the grant may use.
func (g *Grant) Bearer() bool { return g != nil && g.Peer == effects.Incarnation{} }

// Open reports whether stores under the grant are still allowed.
func (m *Memory) Open(g *Grant) bool {
	if g.Gone || g.Revoking {
		return false
	}
	for _, p := range g.Pages {
		if m.Pool.Pages[p.Index].Granted == g.ID {
			return true
		}
	}
	return false
}

// FirstUnder returns the first of the grant's pages that is still under the grant. If there is none, the result is
// beyond all pages.
func (m *Memory) FirstUnder(g *Grant) uint32 {
	for _, p := range g.Pages {
		if m.Pool.Pages[p.Index].Granted == g.ID {
			return p.Index
		}
	}
	return uint32(len(m.Pool.Pages))
}
