package contract

import "github.com/kvferry/kvferry/effects"

// A HoldStage is a DataStage that can stop the accesses of drivers to pages in the middle of a page. A driver has two
// threads there for the pages of a node.
type HoldStage interface {
	DataStage
	// HoldAccesses stops each access of a node's driver to a page from now on, once the access has begun.
	HoldAccesses(at End)
	// AwaitHeld waits until n accesses at a node are stopped.
	AwaitHeld(at End, n int)
	// PassFirst lets the access that was stopped first continue to the end of the page, and waits until a later access
	// is stopped: by then the thread of the first access has left the page. There must be more pages to access.
	PassFirst(at End)
	// ReleaseFirst lets the access that was stopped first continue, and does not wait. It is for threads without a
	// further page.
	ReleaseFirst(at End)
	// RunThreads lets the drivers' threads run until all of them wait, so that a driver that reports too early has done
	// so.
	RunThreads()
	// ReleaseAll lets all accesses at a node continue, and stops no access any more.
	ReleaseAll(at End)
	// HasEvent reports whether an event that fits was reported to a node and is not taken yet.
	HasEvent(at End, fits func(effects.Event) bool) bool
	// BeginClose begins to close a node's driver. The function closed reports whether the close is complete, and wait
	// waits until it is.
	BeginClose(at End) (closed func() bool, wait func())
}

// ConcurrentAccesses returns the scenarios in which two threads access pages of one grant, or one page, when something
// ends: the driver must not report the end before the last thread has left the pages. Stages without the methods of a
// HoldStage play the scenarios without stopping threads. sends says that owners send the pages that peers read, and so
// access the pages meanwhile.
func ConcurrentAccesses(sends bool) []Scenario[DataStage] {
	return append(append(concurrentPushes(), concurrentReads()...), concurrentSends(sends)...)
}

// holdCase are two threads in the middle of pages, and a second transfer that waits behind the first transfer.
type holdCase struct {
	*trial
	stage        HoldStage // nil: threads cannot be stopped
	at           End       // the node whose pages the threads access
	link         linkCase
	corr         effects.Corr // the transfer that the threads carry out
	waiting      effects.Corr // the transfer that waits
	grant        effects.GrantID
	waitingGrant effects.GrantID // the grant of the transfer that waits
}

// newHoldCase begins to stop accesses at a node, where the stage can.
func newHoldCase(l linkCase, at End) *holdCase {
	h := &holdCase{trial: l.trial, at: at, link: l}
	if h.stage, _ = l.stage.(HoldStage); h.stage != nil && h.err == nil {
		h.stage.HoldAccesses(at)
	}
	return h
}

// awaitHeld waits until both threads are in the middle of a page.
func (h *holdCase) awaitHeld() {
	if h.stage != nil && h.err == nil {
		h.stage.AwaitHeld(h.at, 2)
	}
}

// expectEndLast lets the first of the two threads continue, checks that the event that reports the end is not sent yet,
// lets the second thread continue, and waits for the event. more says that the first thread has another page to access.
func expectEndLast[E effects.Event](h *holdCase, of End, more bool, fits func(E) bool) {
	if h.err != nil {
		return
	}
	if h.stage != nil {
		early := func(ev effects.Event) bool { e, is := ev.(E); return is && fits(e) }
		if h.stage.RunThreads(); h.stage.HasEvent(of, early) {
			var none E
			h.fail("%T is told to %v while two are at its pages", none, of)
		}
		if more {
			h.stage.PassFirst(h.at)
		} else {
			h.stage.ReleaseFirst(h.at)
		}
		if h.stage.RunThreads(); h.stage.HasEvent(of, early) {
			var none E
			h.fail("%T is told to %v when the first of two has left its pages", none, of)
		}
		h.stage.ReleaseAll(h.at)
	}
	awaitEvent(h.trial, of, fits)
}

// closeDriver closes a driver, and checks that the close completes only after the last thread has left.
func (h *holdCase) closeDriver(of End) {
	if h.err != nil {
		return
	}
	if h.stage == nil {
		h.killNode(of)
		return
	}
	h.nodes[of].killed = true
	closed, wait := h.stage.BeginClose(of)
	for _, when := range []string{"two are", "the second of two is"} {
		if h.stage.RunThreads(); closed() {
			h.fail("%v has closed while %s at its pages", of, when)
		}
		if when == "two are" {
			h.stage.ReleaseFirst(h.at)
		}
	}
	h.stage.ReleaseAll(h.at)
	wait()
}

// revokeGrant revokes a grant of B.
func (h *holdCase) revokeGrant(id effects.GrantID) { h.issue(B, &effects.Revoke{Grant: id}) }

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

// isInitiatorLost fits the event by which B is notified of the loss of A.
func (h *holdCase) isInitiatorLost() func(*effects.LinkLost) bool {
	initiator := h.link.a.Incarnation
	return func(e *effects.LinkLost) bool { return e.Peer == initiator && e.Link == 0 }
}

// awaitSettled waits for a transfer's end, and for its Settled, which must not be reported before the last thread has
// left.
func (h *holdCase) awaitSettled(corr effects.Corr, more bool) Ending {
	ev := awaitEvent(h.trial, A, isDone(corr))
	if ev == nil {
		return Ending{}
	}
	end, _ := EndingOf(ev)
	switch {
	case !ev.Settled:
		expectEndLast(h, A, more, isSettled(corr))
	case h.stage != nil:
		h.stage.ReleaseAll(h.at)
	}
	return end
}

// awaitEnd waits for a transfer's end, and for its Settled if that is owed.
func (h *holdCase) awaitEnd(corr effects.Corr) Ending {
	ev := awaitEvent(h.trial, A, isDone(corr))
	if ev == nil {
		return Ending{}
	}
	if !ev.Settled {
		awaitEvent(h.trial, A, isSettled(corr))
	}
	end, _ := EndingOf(ev)
	return end
}

// expectUnaffected checks that the waiting transfer, which was not affected, ends with OK.
func (h *holdCase) expectUnaffected() {
	if end := h.awaitEnd(h.waiting); h.err == nil && end.Code != effects.OK {
		h.fail("a transfer that nothing happened to ended as %v", end)
	}
}
