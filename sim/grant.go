package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// grant is what a driver knows of one Grant.
type grant struct {
	id       effects.GrantID
	peer     effects.Incarnation
	read     bool // it lets the pages be loaded; otherwise they may be stored into
	pages    []effects.Page
	closed   []bool // landed and reported: no further store
	claimed  []bool // fenced: a push is under way to it
	holds    int
	revoking bool
	gone     bool // on leased planes: the mapping is destroyed

	ends      effects.Time // on the owner's clock
	believed  effects.Time // the end that its holder may believe in, on his clock
	committed bool         // the initiator's word was taken
	loan      loan         // of one to read
	job       int          `snap:"skip"` // of one to write: for whose request, from 1
}

func (w *world) publish(n *node, pages []effects.Page) {
	w.oracles.onPublish(n, pages)
	w.makeKnown(n, pages)
}

// makeKnown shows the generation of pages to every peer that looks at them.
func (w *world) makeKnown(n *node, pages []effects.Page) {
	for _, p := range pages {
		n.poolOf(pages).pages[p.Index].generation = p.Generation
	}
}

func (w *world) grantPages(n *node, e *effects.Grant) {
	if e.Read {
		w.lend(n, e)
		return
	}
	w.oracles.onGrant(n, e)
	if w.failure != nil {
		return
	}
	w.makeKnown(n, e.Pages)
	n.grants[e.ID] = w.stock.grants.one(grant{id: e.ID, peer: e.Peer, pages: w.stock.spans.keep(e.Pages),
		closed: w.stock.flags.take(len(e.Pages)), claimed: w.stock.flags.take(len(e.Pages)),
		ends: w.clock(n).Add(n.pool.writes)})
	w.result.Grants++
}

func (w *world) revoke(n *node, e *effects.Revoke) {
	g := n.grants[e.Grant]
	if g == nil || g.revoking {
		w.fail("contract", "node %d revokes grant %d, which it does not have or has revoked", n.it(), n.itsGrant(e.Grant))
		return
	}
	g.revoking = true
	if !w.plan.Leased {
		if g.holds == 0 {
			w.revokeEnds(n, g)
		}
		return
	}
	if w.plan.Communicators {
		w.expel(n, g)
		return
	}
	d := w.draw(draw.Revoke, n)
	at := d.Heavy(w.plan.Net)
	if w.struck(plan.FaultRevokeHeldUp, n.subject(), n.ordinals[draw.Revoke]) {
		at += effects.Duration(int64(w.plan.Faulty) + int64(effects.Second))
	}
	w.forNode(n, at, delivery{kind: kindUnmap, a: uint64(e.Grant)})
}

// revokeEnds says Revoked, behind what landed before.
func (w *world) revokeEnds(n *node, g *grant) {
	for _, t := range w.going.transfers.some {
		if t.asked && !t.ended && t.remote == n.pool && t.grant == g.id {
			switch {
			case !t.read:
				t.stop = effects.Withdrawn
				w.endPush(t)
			case t.served:
				t.stop = effects.Withdrawn
				w.endRead(t)
			}
		}
	}
	g.gone = true
	w.inOrder(n, w.draw(draw.Revoke, n).Heavy(w.plan.Net), delivery{kind: kindRevoked, a: uint64(g.id)})
}

// unmap destroys the mapping behind a grant of a leased plane.
func (w *world) unmap(n *node, id effects.GrantID) {
	if g := n.grants[id]; !g.gone {
		g.gone = true
		w.oracles.onUnmap(n, id)
		w.inOrder(n, 0, delivery{kind: kindRevoked, a: uint64(id)})
	}
}
