package contract

import "github.com/kvferry/kvferry/effects"

// BusyThreads returns the scenarios in which a large batch occupies all threads of a driver and has more pages than
// there are threads, when a batch of another peer arrives: the driver must begin the second batch before the first
// batch is finished. shared says that all links of a node share two threads; otherwise each link has two threads.
// Stages without the methods of a HoldStage play the scenarios without stopping threads.
func BusyThreads(shared bool) []Scenario[DataStage] {
	done := endings(Transferring, effects.OK)
	return []Scenario[DataStage]{
		{Name: "a push comes while another has all threads", Endings: done, run: func(p *trial, stage DataStage) Ending {
			b := newBusyCase(p, stage, B)
			large, into := b.startPush(0, b.pages-2)
			b.h.awaitHeld()
			small, second := b.startPush(b.pages-2, 1)
			b.awaitReceived(second)
			b.checkTurns(shared, isLandedUnder(into), isLandedUnder(second))
			b.expectCode(b.h.awaitEnd(small), effects.OK)
			return b.h.awaitEnd(large)
		}},
		{Name: "a read comes while another has all threads", Endings: done, run: func(p *trial, stage DataStage) Ending {
			b := newBusyCase(p, stage, A)
			large := b.startRead(0, b.pages-2)
			b.h.awaitHeld()
			b.link = b.second
			small := b.startRead(b.pages-2, 1)
			b.checkTurns(shared, isTransferDone(large), isTransferDone(small))
			b.expectCode(b.h.awaitEnd(small), effects.OK)
			return b.h.awaitEnd(large)
		}},
	}
}

// busyCase is two links from A to B.
type busyCase struct {
	linkCase
	h      *holdCase
	second effects.Link
	pages  uint32
}

func newBusyCase(p *trial, stage DataStage, at End) *busyCase {
	b := &busyCase{linkCase: linkNodes(p, stage)}
	b.second = b.importPeer(b.b.Incarnation).Link
	b.pages = min(b.a.Pages, b.b.Pages)
	b.h = newHoldCase(b.linkCase, at)
	return b
}

// startPush starts a push over the first link, or over the second link if first is not 0.
func (b *busyCase) startPush(first, n uint32) (effects.Corr, effects.GrantID) {
	s := &pushCase{linkCase: b.linkCase, from: b.fillPages(A, first, n)}
	s.grant, s.into = b.grantPages(b.a.Incarnation, first, n, b.b.PageBytes)
	if first > 0 {
		s.link = b.second
	}
	return s.startTransfer(), s.grant
}

// awaitReceived waits until B has received the newest push on the second link, and issues another push that B must
// refuse: B handles a link's messages in order, so B has then received the earlier push.
func (b *busyCase) awaitReceived(grant effects.GrantID) {
	from := b.fillPages(A, b.pages-1, 1)
	e := &effects.Transfer{Corr: b.nextCorr(A), Link: b.second, Peer: b.b.Incarnation, Grant: grant + 100,
		NotAfter: b.stage.Now(A).Add(60 * effects.Second), Pairs: []effects.Pair{{Local: from[0],
			Remote: effects.RemotePage{Buffer: b.b.Buffer, Generation: 1}}}}
	b.issue(A, e)
	awaitEvent(b.trial, A, isDone(e.Corr))
}

func (b *busyCase) startRead(first, n uint32) effects.Corr {
	grant, from := grantForReading(b.linkCase, first, n)
	return startRead(b.linkCase, grant, from, first)
}

// isLandedUnder fits a Landed under a grant.
func isLandedUnder(id effects.GrantID) func(effects.Event) bool {
	return func(ev effects.Event) bool { e, is := ev.(*effects.Landed); return is && e.Grant == id }
}

// isTransferDone fits the TransferDone of a transfer.
func isTransferDone(corr effects.Corr) func(effects.Event) bool {
	return func(ev effects.Event) bool { e, is := ev.(*effects.TransferDone); return is && e.Corr == corr }
}

// checkTurns lets the accesses continue page by page, and checks that the small batch is finished before the large one.
func (b *busyCase) checkTurns(shared bool, large, small func(effects.Event) bool) {
	stage, at := b.h.stage, b.h.at
	if stage == nil || b.err != nil {
		return
	}
	if shared {
		for left := b.pages - 2; left > 2 && !stage.HasEvent(at, small); left-- {
			stage.ReleaseFirst(at)
			stage.AwaitHeld(at, 2) // The thread that left its page has reported it.
		}
		if stage.HasEvent(at, large) || !stage.HasEvent(at, small) {
			b.fail("a batch of one page waits for all of a large one that came before it")
		}
	} else {
		stage.AwaitHeld(at, 3) // Two threads of the first link and one of the second.
	}
	stage.ReleaseAll(at)
}
