package world

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// Carry carries out an effect as effects.Effect requires of a driver.
func (w *World) Carry(n *Node, e effects.Effect) {
	note := func(k Kind, a, b, c uint64) { w.Journal.Note(w.Now, k, n.ID, a, b, c) }
	if n.User && !planeless(e) {
		w.Fail("contract", "node %d wants %s, and has no pages: no data plane serves it", n.It(), effects.KindOf(e))
		return
	}
	switch e := e.(type) {
	case *effects.Open:
		note(KindOpen, uint64(e.Corr), uint64(e.Channel), uint64(e.Addr.Port))
		n.open(w, e)
	case *effects.Close:
		note(kindClose, uint64(e.Conn), 0, 0)
		w.Close(n, e)
	case *effects.Send:
		n.load(w, e)
		note(KindSend, uint64(e.Corr), uint64(e.Conn), uint64(len(e.Body)))
		w.Journal.bytes(e.Body)
		n.send(w, e)
	case *effects.Post:
		note(KindPost, uint64(e.Corr), uint64(e.Conn), uint64(len(e.Body)))
		w.Journal.bytes(e.Body)
		n.post(w, e)
	case *effects.Reply:
		note(KindReply, uint64(e.Request), uint64(len(e.Body)), 0)
		w.Journal.bytes(e.Body)
		n.reply(w, e)
	case *effects.Import:
		note(kindImport, uint64(e.Corr), word(e.Peer), 0)
		n.importPeer(w, e)
	case *effects.Drop:
		note(kindDrop, uint64(e.Link), 0, 0)
		n.drop(w, e)
	case *effects.Publish:
		note(KindPublish, uint64(len(e.Pages)), n.first(e.Pages), 0)
		n.publish(w, e.Pages)
	case *effects.Grant:
		note(KindGrant, uint64(e.ID), uint64(len(e.Pages)), n.first(e.Pages))
		n.grantPages(w, e)
	case *effects.Revoke:
		note(KindRevoke, uint64(e.Grant), 0, 0)
		n.revoke(w, e)
	case *effects.Transfer:
		note(KindTransfer, uint64(e.Corr), uint64(e.Grant), uint64(len(e.Pairs)))
		n.transfer(w, e)
	case *effects.Cancel:
		note(KindCancel, uint64(e.Corr), 0, 0)
		n.cancel(w, e)
		n.cancelCopy(w, e.Corr)
	case *effects.Confirm:
		note(KindConfirm, uint64(e.Landing), uint64(e.Code), 0)
		n.confirm(w, e)
	case *effects.Copy:
		note(kindCopyOut, uint64(e.Corr), uint64(len(e.Pairs)), uint64(e.Pairs[0].From.Index))
		n.copyOut(w, e)
	case *effects.Store:
		note(KindStoreIn, uint64(e.Page.Index), uint64(e.Page.Generation), uint64(len(e.Bytes)))
		n.storeIn(w, e)
	case *effects.Scatter:
		note(kindScatter, uint64(e.Corr), uint64(e.Ticket), uint64(e.First))
		n.scatter(w, e)
	case *effects.Deliver:
		note(KindDeliver, uint64(e.Ticket), uint64(e.Code), uint64(len(e.Pages)))
		w.System.Delivered(n, e)
	case *effects.Return:
		note(KindReturn, uint64(e.Ticket), 0, 0)
		w.System.Returned(n, e)
	case *effects.Observe:
		note(KindObserve, uint64(e.Fact), uint64(e.Code), e.ID)
		if !n.User {
			w.Result.fact(e.Fact)
		}
		OnObserved.Report(&w.Panel, n.ID, Observed{n, e})
		w.System.Observed(n, e)
		if e.Fact == effects.FactMalformed {
			w.unread = false
		}
	default:
		panic(fmt.Sprintf("BUG: unknown effect %T", e))
	}
}

// first returns the index of the first page, for the journal.
func (n *Node) first(pages []effects.Page) uint64 {
	if len(pages) == 0 {
		return 0
	}
	return uint64(pages[0].Index)
}

// word returns the first bytes of an incarnation, for the journal.
func word(i effects.Incarnation) uint64 {
	return uint64(i[0])<<24 | uint64(i[1])<<16 | uint64(i[2])<<8 | uint64(i[3])
}

// planeless reports whether a node without pages may emit an effect.
func planeless(e effects.Effect) bool {
	switch e.(type) {
	case *effects.Open, *effects.Close, *effects.Send, *effects.Post, *effects.Reply, *effects.Deliver, *effects.Return,
		*effects.Observe:
		return true
	default:
		return false
	}
}
