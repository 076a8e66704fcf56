package world

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// CarryOut carries out an effect as effects.Effect requires of a driver.
func (w *World) CarryOut(n *Node, e effects.Effect) {
	note := func(k Kind, a, b, c uint64) { w.Journal.AddLine(w.Now, k, n.ID, a, b, c) }
	if n.Custom && !needsNoPlane(e) {
		w.Fail("contract", "node %d emits %s, but has no pages and no data plane", n.AsSubject(), effects.KindOf(e))
		return
	}
	switch e := e.(type) {
	case *effects.Open:
		note(KindOpen, uint64(e.Corr), uint64(e.Channel), uint64(e.Addr.Port))
		n.openConn(w, e)
	case *effects.Close:
		note(kindClose, uint64(e.Conn), 0, 0)
		w.CloseConn(n, e)
	case *effects.Send:
		n.loadCarried(w, e)
		note(KindSend, uint64(e.Corr), uint64(e.Conn), uint64(len(e.Body)))
		w.Journal.addSentBytes(e.Body)
		n.sendRequest(w, e)
	case *effects.Post:
		note(KindPost, uint64(e.Corr), uint64(e.Conn), uint64(len(e.Body)))
		w.Journal.addSentBytes(e.Body)
		n.sendPost(w, e)
	case *effects.Reply:
		note(KindReply, uint64(e.Request), uint64(len(e.Body)), 0)
		w.Journal.addSentBytes(e.Body)
		n.sendReply(w, e)
	case *effects.Import:
		note(kindImport, uint64(e.Corr), incarnationPrefix(e.Peer), 0)
		n.importPeer(w, e)
	case *effects.Drop:
		note(kindDrop, uint64(e.Link), 0, 0)
		n.dropLink(w, e)
	case *effects.Publish:
		note(KindPublish, uint64(len(e.Pages)), n.firstIndex(e.Pages), 0)
		n.publishPages(w, e.Pages)
	case *effects.Grant:
		note(KindGrant, uint64(e.ID), uint64(len(e.Pages)), n.firstIndex(e.Pages))
		n.grantPages(w, e)
	case *effects.Revoke:
		note(KindRevoke, uint64(e.Grant), 0, 0)
		n.revokeGrant(w, e)
	case *effects.Transfer:
		note(KindTransfer, uint64(e.Corr), uint64(e.Grant), uint64(len(e.Pairs)))
		n.startTransfer(w, e)
	case *effects.Cancel:
		note(KindCancel, uint64(e.Corr), 0, 0)
		n.cancelTransfer(w, e)
		n.cancelCopy(w, e.Corr)
	case *effects.Confirm:
		note(KindConfirm, uint64(e.Landing), uint64(e.Code), 0)
		n.confirmLanding(w, e)
	case *effects.Copy:
		note(kindStartCopy, uint64(e.Corr), uint64(len(e.Pairs)), uint64(e.Pairs[0].From.Index))
		n.startCopy(w, e)
	case *effects.Store:
		note(KindStoreCarried, uint64(e.Page.Index), uint64(e.Page.Generation), uint64(len(e.Bytes)))
		n.storeCarried(w, e)
	case *effects.Verify:
		note(kindVerify, uint64(e.Corr), uint64(len(e.Pages)), n.firstIndex(e.Pages))
		n.verifyPages(w, e)
	case *effects.Scatter:
		note(kindScatter, uint64(e.Corr), uint64(e.Ticket), uint64(e.First))
		n.scatterChunks(w, e)
	case *effects.Deliver:
		note(KindDeliver, uint64(e.Ticket), uint64(e.Code), uint64(len(e.Pages)))
		w.Journal.addReason(e.Why)
		w.System.HandleDeliver(n, e)
	case *effects.Return:
		note(KindReturn, uint64(e.Ticket), 0, 0)
		w.System.HandleReturn(n, e)
	case *effects.Observe:
		note(KindObserve, uint64(e.Fact), uint64(e.Code), e.ID)
		w.Journal.addReason(e.Why)
		if !n.Custom {
			w.Result.countFact(e.Fact)
		}
		OnFactObserved.Report(&w.Panel, n.ID, FactObserved{n, e})
		w.System.HandleObserve(n, e)
		if e.Fact == effects.FactMalformed {
			w.repeatUnreported = false
		}
	default:
		panic(fmt.Sprintf("BUG: unknown effect %T", e))
	}
}

// firstIndex returns the index of the first page, for the journal.
func (n *Node) firstIndex(pages []effects.Page) uint64 {
	if len(pages) == 0 {
		return 0
	}
	return uint64(pages[0].Index)
}

// incarnationPrefix returns the first bytes of an incarnation, for the journal.
func incarnationPrefix(i effects.Incarnation) uint64 {
	return uint64(i[0])<<24 | uint64(i[1])<<16 | uint64(i[2])<<8 | uint64(i[3])
}

// needsNoPlane reports whether a node without pages may emit an effect.
func needsNoPlane(e effects.Effect) bool {
	switch e.(type) {
	case *effects.Open, *effects.Close, *effects.Send, *effects.Post, *effects.Reply, *effects.Deliver, *effects.Return,
		*effects.Observe:
		return true
	default:
		return false
	}
}
