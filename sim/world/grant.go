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
	Revoked  bool // revoked; on leased planes the mapping is destroyed

	ExpiresAt       effects.Time // on the owner's clock
	HolderExpiresAt effects.Time // the end that the lease holder may assume, on the holder's clock
	Committed       bool         // the initiator's commit was accepted
	CommitArrivedAt effects.Time // on the owner's clock, the first commit of a grant that was in force; 0: none has
	LateCommit      bool         // the commit arrived after the end
	Lease           readLease    // of a read lease
	Job             int          `snap:"skip"` // of a write grant: the job that it serves, from 1
	SharedKeys      []uint32     `snap:"skip"` // of a grant under which a peer was asked to write: the key for each page
}

// IsRequestedByOwner reports whether the owner of the pages asked the peer to write into them, in a lookup with push or in
// a registration. The peer then sent no request for the grant.
func (g *Grant) IsRequestedByOwner() bool { return len(g.SharedKeys) > 0 }

// publishPages carries out an [effects.Publish].
func (n *Node) publishPages(w *World, pages []effects.Page) {
	OnPublishingPages.Report(&w.Panel, n.ID, PublishingPages{n, pages})
	n.showGenerations(w, pages)
}

// showGenerations shows the generation of pages to all peers that look at the pages.
func (n *Node) showGenerations(w *World, pages []effects.Page) {
	for _, p := range pages {
		n.Pool.Pages[p.Index].Generation = p.Generation
	}
}

// grantPages carries out an [effects.Grant].
func (n *Node) grantPages(w *World, e *effects.Grant) {
	if e.Read {
		n.leasePages(w, e)
		return
	}
	OnGrantingPages.Report(&w.Panel, n.ID, GrantingPages{n, e})
	if w.Failure != nil {
		return
	}
	n.showGenerations(w, e.Pages)
	n.Grants[e.ID] = w.Arenas.grants.AllocCopy(Grant{ID: e.ID, Peer: e.Peer, Pages: w.Arenas.EffectPages.CopySlice(e.Pages),
		closed: w.Arenas.Bools.Alloc(len(e.Pages)), claimed: w.Arenas.Bools.Alloc(len(e.Pages)),
		ExpiresAt: w.ReadClock(n).Add(n.Pool.writeTime)})
	w.Result.Grants++
}

// revokeGrant carries out an [effects.Revoke].
func (n *Node) revokeGrant(w *World, e *effects.Revoke) {
	g := n.Grants[e.Grant]
	if g == nil || g.Revoking {
		w.Fail("contract", "node %d revokes grant %d, which does not exist or is already revoked", n.AsSubject(), n.GrantSubject(e.Grant))
		return
	}
	g.Revoking = true
	if !w.Conditions.Leased {
		if g.Holds == 0 {
			g.finishRevoke(w, n)
		}
		return
	}
	if w.Conditions.Communicators {
		g.expelPeer(w, n)
		return
	}
	d := n.nextDraw(w, draw.Revoke)
	at := d.HeavyTail(w.Conditions.MessageTime)
	if w.IsStruck(plan.FaultRevokeDelayed, n.Subject(), n.drawCounts[draw.Revoke]) {
		at += effects.Duration(int64(w.Conditions.FaultsEnd) + int64(effects.Second))
	}
	w.QueueForNode(n, at, Delivery{Kind: KindUnmap, A: uint64(e.Grant)})
}

// finishRevoke completes a revocation on a fenced plane. The report comes after the reports of what landed before. A push
// that waits, for a thread that copies or for its bytes, may notice only later that its grant is gone: then it lands nothing.
func (g *Grant) finishRevoke(w *World, n *Node) {
	for _, t := range w.Active.Transfers.Items {
		if t.CopyStarted && !t.Ended && t.Remote == n.Pool && t.Grant == g.ID {
			switch {
			case !t.Read:
				late := draw.Hash(w.Seed, draw.Revoke, uint64(t.Name), 0).ChancePermille(250)
				if t.stopCode = effects.Withdrawn; late && !draw.IsFixed(w.Seed) {
					t.Landed = t.Landed[:0]
					continue
				}
				t.endPush(w)
			case t.ownerSends:
				t.stopCode = effects.Withdrawn
				t.endRead(w)
			}
		}
	}
	g.Revoked = true
	n.queueInOrder(w, &n.poolQueue, n.nextDraw(w, draw.Revoke).HeavyTail(w.Conditions.MessageTime), Delivery{Kind: KindRevoked,
		A: uint64(g.ID)})
}

// unmapGrant destroys the mapping behind a grant of a leased plane, which completes the revocation.
func (n *Node) unmapGrant(w *World, id effects.GrantID) {
	if g := n.Grants[id]; !g.Revoked {
		g.Revoked = true
		OnGrantUnmapped.Report(&w.Panel, n.ID, GrantUnmapped{n, id})
		n.queueInOrder(w, &n.poolQueue, 0, Delivery{Kind: KindRevoked, A: uint64(id)})
	}
}

// IsBearer reports whether the grant is a bearer grant, which any peer that knows the grant may use.
func (g *Grant) IsBearer() bool { return g != nil && g.Peer == effects.Incarnation{} }

// AllowsStores reports whether stores under the grant are still allowed.
func (m *Memory) AllowsStores(g *Grant) bool {
	if g.Revoked || g.Revoking {
		return false
	}
	for _, p := range g.Pages {
		if m.Pool.Pages[p.Index].Granted == g.ID {
			return true
		}
	}
	return false
}

// FirstGrantedPage returns the first of the grant's pages that is still under the grant. If there is none, the result
// is beyond all pages.
func (m *Memory) FirstGrantedPage(g *Grant) uint32 {
	for _, p := range g.Pages {
		if m.Pool.Pages[p.Index].Granted == g.ID {
			return p.Index
		}
	}
	return uint32(len(m.Pool.Pages))
}
