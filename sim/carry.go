package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
)

// carry carries out one effect, as effects.Effect says a driver must, and says which it was.
func (w *world) carry(n *node, e effects.Effect) plan.EffectKind {
	note := func(k kind, a, b, c uint64) { w.journal.note(w.now, k, n.id, a, b, c) }
	if n.own != nil && !planeless(e) {
		w.fail("contract", "node %d wants %s, and has no pages: no data plane serves it", n.it(), plan.KindOf(e))
		return plan.KindOf(e)
	}
	switch e := e.(type) {
	case *effects.Open:
		note(kindOpen, uint64(e.Corr), uint64(e.Channel), uint64(e.Addr.Port))
		w.open(n, e)
		return plan.EffectOpen
	case *effects.Close:
		note(kindClose, uint64(e.Conn), 0, 0)
		w.close(n, e)
		return plan.EffectClose
	case *effects.Send:
		note(kindSend, uint64(e.Corr), uint64(e.Conn), uint64(len(e.Body)))
		w.journal.bytes(e.Body)
		w.send(n, e)
		return plan.EffectSend
	case *effects.Post:
		note(kindPost, uint64(e.Corr), uint64(e.Conn), uint64(len(e.Body)))
		w.journal.bytes(e.Body)
		w.post(n, e)
		return plan.EffectPost
	case *effects.Reply:
		note(kindReply, uint64(e.Request), uint64(len(e.Body)), 0)
		w.journal.bytes(e.Body)
		w.reply(n, e)
		return plan.EffectReply
	case *effects.Import:
		note(kindImport, uint64(e.Corr), word(e.Peer), 0)
		w.importPeer(n, e)
		return plan.EffectImport
	case *effects.Drop:
		note(kindDrop, uint64(e.Link), 0, 0)
		w.drop(n, e)
		return plan.EffectDrop
	case *effects.Publish:
		note(kindPublish, uint64(len(e.Pages)), n.first(e.Pages), 0)
		w.publish(n, e.Pages)
		return plan.EffectPublish
	case *effects.Grant:
		note(kindGrant, uint64(e.ID), uint64(len(e.Pages)), n.first(e.Pages))
		w.grantPages(n, e)
		return plan.EffectGrant
	case *effects.Revoke:
		note(kindRevoke, uint64(e.Grant), 0, 0)
		w.revoke(n, e)
		return plan.EffectRevoke
	case *effects.Transfer:
		note(kindTransfer, uint64(e.Corr), uint64(e.Grant), uint64(len(e.Pairs)))
		w.transfer(n, e)
		return plan.EffectTransfer
	case *effects.Cancel:
		note(kindCancel, uint64(e.Corr), 0, 0)
		w.cancel(n, e)
		w.cancelCopy(n, e.Corr)
		return plan.EffectCancel
	case *effects.Confirm:
		note(kindConfirm, uint64(e.Landing), uint64(e.Code), 0)
		w.confirm(n, e)
		return plan.EffectConfirm
	case *effects.Copy:
		note(kindCopyOut, uint64(e.Corr), uint64(len(e.Pairs)), uint64(n.numbered(e.Pairs[0].From)))
		w.copyOut(n, e)
		return plan.EffectCopy
	case *effects.Scatter:
		note(kindScatter, uint64(e.Corr), uint64(e.Ticket), uint64(e.First))
		w.scatter(n, e)
		return plan.EffectScatter
	case *effects.Deliver:
		note(kindDeliver, uint64(e.Ticket), uint64(e.Code), uint64(len(e.Pages)))
		w.system.engine.outcome(w, n, e)
		return plan.EffectDeliver
	case *effects.Return:
		note(kindReturn, uint64(e.Ticket), 0, 0)
		w.system.engine.returned(w, n, e)
		return plan.EffectReturn
	case *effects.Observe:
		note(kindObserve, uint64(e.Fact), uint64(e.Code), e.ID)
		if n.own == nil {
			w.result.fact(e.Fact)
		}
		w.oracles.onFact(n, e)
		w.system.engine.observed(w, n, e)
		if e.Fact == effects.FactMalformed {
			w.unread = false
		}
		return plan.EffectObserve
	}
	panic("BUG: effect that the simulator does not know")
}

func (n *node) first(pages []effects.Page) uint64 {
	if len(pages) == 0 {
		return 0
	}
	return uint64(n.numbered(pages[0]))
}

// numbered is the number of a page in what people read. Where a node has two pools, those of the one that its engine fills
// are counted behind the others.
func (n *node) numbered(p effects.Page) uint32 {
	if n.device != nil && p.Pool == n.device.number {
		return uint32(len(n.pool.pages)) + p.Index
	}
	return p.Index
}

// word is the start of an incarnation, for the journal.
func word(i effects.Incarnation) uint64 {
	return uint64(i[0])<<24 | uint64(i[1])<<16 | uint64(i[2])<<8 | uint64(i[3])
}
