package contract

import "github.com/kvferry/kvferry/effects"

// A HoldStage is a DataStage that can stop the accesses of drivers to pages in the middle of a page. A driver has two
// threads there for the pages of a node.
type HoldStage interface {
	DataStage
	// Hold stops each access of a node's driver to a page from now on, once the access has begun.
	Hold(at End)
	// Stands waits until n accesses at a node are stopped.
	Stands(at End, n int)
	// Passes lets the access that was stopped first continue to the end of the page, and waits until a later access is
	// stopped: by then the thread of the first access has left the page. There must be more pages to access.
	Passes(at End)
	// Leaves lets the access that was stopped first continue, and does not wait. It is for threads without a further
	// page.
	Leaves(at End)
	// Rests lets the drivers' threads run until all of them wait, so that a driver that reports too early has done so.
	Rests()
	// Frees lets all accesses at a node continue, and stops no access any more.
	Frees(at End)
	// HasEvent reports whether an event that fits was reported to a node and is not taken yet.
	Told(at End, fits func(effects.Event) bool) bool
	// Closes begins to close a node's driver. The function closed reports whether the close is complete, and wait waits
	// until it is.
	Closes(at End) (closed func() bool, wait func())
}

// Holders returns the scenarios in which two threads access pages of one grant, or one page, when something ends: the
// driver must not report the end before the last thread has left the pages. Stages without the methods of a HoldStage
// play the scenarios without stopping threads. sends says that owners send the pages that peers read, and so access the
// pages meanwhile.
func Holders(sends bool) []Scenario[DataStage] {
	return append(append(holdersOfPushes(), holdersOfReads()...), holdersWhoSend(sends)...)
}

// holders are two threads in the middle of pages, and a second transfer that waits behind the first transfer.
type holders struct {
	*play
	stage  HoldStage // nil: threads cannot be stopped
	at     End       // the node whose pages the threads access
	peers  aLink
	corr   effects.Corr // the transfer that the threads carry out
	beside effects.Corr // the transfer that waits
	grant  effects.GrantID
	other  effects.GrantID // the grant of the transfer that waits
}

// hold begins to stop accesses at a node, where the stage can.
func hold(l aLink, at End) *holders {
	h := &holders{play: l.play, at: at, peers: l}
	if h.stage, _ = l.stage.(HoldStage); h.stage != nil && h.err == nil {
		h.stage.Hold(at)
	}
	return h
}

// stand waits until both threads are in the middle of a page.
func (h *holders) stand() {
	if h.stage != nil && h.err == nil {
		h.stage.Stands(h.at, 2)
	}
}

// quiet lets the first of the two threads continue, checks that the event that reports the end is not sent yet, lets
// the second thread continue, and waits for the event. more says that the first thread has another page to access.
func quiet[E effects.Event](h *holders, of End, more bool, fits func(E) bool) {
	if h.err != nil {
		return
	}
	if h.stage != nil {
		early := func(ev effects.Event) bool { e, is := ev.(E); return is && fits(e) }
		if h.stage.Rests(); h.stage.Told(of, early) {
			var none E
			h.fail("%T is told to %v while two are at its pages", none, of)
		}
		if more {
			h.stage.Passes(h.at)
		} else {
			h.stage.Leaves(h.at)
		}
		if h.stage.Rests(); h.stage.Told(of, early) {
			var none E
			h.fail("%T is told to %v when the first of two has left its pages", none, of)
		}
		h.stage.Frees(h.at)
	}
	eventually(h.play, of, fits)
}

// closeDriver closes a driver, and checks that the close completes only after the last thread has left.
func (h *holders) closed(of End) {
	if h.err != nil {
		return
	}
	if h.stage == nil {
		h.kill(of)
		return
	}
	h.sides[of].killed = true
	closed, wait := h.stage.Closes(of)
	for _, when := range []string{"two are", "the second of two is"} {
		if h.stage.Rests(); closed() {
			h.fail("%v has closed while %s at its pages", of, when)
		}
		if when == "two are" {
			h.stage.Leaves(h.at)
		}
	}
	h.stage.Frees(h.at)
	wait()
}

// revoke revokes a grant of B.
func (h *holders) revoke(id effects.GrantID) { h.do(B, &effects.Revoke{Grant: id}) }

// isRevoked fits the Revoked of a grant.
func isRevoked(id effects.GrantID) func(*effects.Revoked) bool {
	return func(e *effects.Revoked) bool { return e.Grant == id }
}

// isSettled fits the Settled of a transfer.
func isSettled(corr effects.Corr) func(*effects.Settled) bool {
	return func(e *effects.Settled) bool { return e.Corr == corr }
}

// isDone fits the TransferDone of a transfer.
func isDone(corr effects.Corr) func(*effects.TransferDone) bool {
	return func(e *effects.TransferDone) bool { return e.Corr == corr }
}

// left fits the event by which B is notified of the loss of A.
func (h *holders) left() func(*effects.LinkLost) bool {
	who := h.peers.a.Incarnation
	return func(e *effects.LinkLost) bool { return e.Peer == who && e.Link == 0 }
}

// awaitSettled waits for a transfer's end, and for its Settled, which must not be reported before the last thread has
// left.
func (h *holders) ended(corr effects.Corr, more bool) Ending {
	ev := eventually(h.play, A, isDone(corr))
	if ev == nil {
		return Ending{}
	}
	end, _ := EndingOf(ev)
	switch {
	case !ev.Settled:
		quiet(h, A, more, isSettled(corr))
	case h.stage != nil:
		h.stage.Frees(h.at)
	}
	return end
}

// awaitEnd waits for a transfer's end, and for its Settled if that is owed.
func (h *holders) ends(corr effects.Corr) Ending {
	ev := eventually(h.play, A, isDone(corr))
	if ev == nil {
		return Ending{}
	}
	if !ev.Settled {
		eventually(h.play, A, isSettled(corr))
	}
	end, _ := EndingOf(ev)
	return end
}

// innocent checks that the waiting transfer, which was not affected, ends with OK.
func (h *holders) innocent() {
	if end := h.ends(h.beside); h.err == nil && end.Code != effects.OK {
		h.fail("a transfer that nothing happened to ended as %v", end)
	}
}
