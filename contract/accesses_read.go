package contract

import "github.com/kvferry/kvferry/effects"

// startRead starts a read of pages of B that are granted to A for reading, into as many pages of A.
func startRead(l linkCase, grant effects.GrantID, from []effects.Page, first uint32) effects.Corr {
	s := &pullCase{linkCase: l, from: from}
	s.grant = grant
	s.into = l.newGenerations(A, first, uint32(len(from)), l.a.PageBytes)
	l.issue(A, &effects.Publish{Pages: s.into})
	return s.startTransfer()
}

// grantForReading stores content in pages of B and grants the pages to A for reading.
func grantForReading(l linkCase, first, n uint32) (effects.GrantID, []effects.Page) {
	s := &pullCase{linkCase: l, from: l.fillPages(B, first, n)}
	s.grantReads(l.a.Incarnation, s.from)
	return s.grant, s.from
}

// holdRead sets up two threads at one node that are at pages of a read of half of all pages, and a read of the second
// half, under another grant, that waits.
func holdRead(p *trial, stage DataStage, at End) *holdCase {
	l := linkNodes(p, stage)
	h := newHoldCase(l, at)
	half := min(l.a.Pages, l.b.Pages) / 2
	read := func(first uint32) (effects.Corr, effects.GrantID) {
		grant, from := grantForReading(l, first, half)
		return startRead(l, grant, from, first), grant
	}
	h.corr, h.grant = read(0)
	h.awaitHeld()
	h.waiting, h.waitingGrant = read(half)
	return h
}

func concurrentReads() []Scenario[DataStage] {
	holding := func(name string, ends []Ending, run func(h *holdCase) Ending) Scenario[DataStage] {
		return Scenario[DataStage]{Name: name, Endings: ends, run: func(p *trial, stage DataStage) Ending {
			return run(holdRead(p, stage, A))
		}}
	}
	orDone := func(code effects.Code) []Ending { return append(endings(Transferring, effects.OK), failures(code)...) }
	return []Scenario[DataStage]{
		holding("a read is cancelled while two are at its pages", orDone(effects.Cancelled), func(h *holdCase) Ending {
			h.issue(A, &effects.Cancel{Corr: h.corr})
			end := h.awaitSettled(h.corr, true)
			h.expectUnaffected()
			return end
		}),
		// Where only the reader accesses the pages, the owner of the pages need not wait for the reader; the driver
		// never delivers what the reader finds.
		holding("a grant is revoked while two read under it", orDone(effects.Withdrawn), func(h *holdCase) Ending {
			h.revokeGrant(h.grant)
			awaitEvent(h.trial, B, isRevoked(h.grant))
			if h.stage != nil && h.err == nil {
				h.stage.ReleaseAll(A)
			}
			end := h.awaitEnd(h.corr)
			h.expectUnaffected()
			return end
		}),
		holding("a link is dropped while two are at pages of its read", endings(Dropping, effects.OK), func(h *holdCase) Ending {
			h.issue(A, &effects.Drop{Link: h.link.link})
			expectEndLast(h, A, false, func(e *effects.Dropped) bool { return e.Link == h.link.link })
			return Ending{Verb: Dropping}
		}),
		holding("the owner dies while two are at pages that they read", orDone(effects.PeerLost), func(h *holdCase) Ending {
			h.killNode(B)
			return h.awaitLoss()
		}),
		holding("the reader closes while two are at its pages", endings(Revoking, effects.OK), func(h *holdCase) Ending {
			h.closeDriver(A)
			return h.revokeAfterwards()
		}),
	}
}

// awaitLoss waits for the ends of both transfers after the loss of the link, and checks that the first transfer is not
// settled before the last thread has left.
func (h *holdCase) awaitLoss() (end Ending) {
	if h.stage != nil && h.err == nil {
		early := func(ev effects.Event) bool {
			e, is := ev.(*effects.TransferDone)
			s, settled := ev.(*effects.Settled)
			return is && e.Corr == h.corr && e.Settled || settled && s.Corr == h.corr
		}
		if h.stage.RunThreads(); h.stage.HasEvent(A, early) {
			h.fail("transfer %d is settled while two are at its pages", h.corr)
		}
		h.stage.ReleaseFirst(A)
		if h.stage.RunThreads(); h.stage.HasEvent(A, early) {
			h.fail("transfer %d is settled when the first of two has left its pages", h.corr)
		}
		h.stage.ReleaseAll(A)
	}
	return h.awaitEnd(h.corr)
}

// concurrentSends returns the scenarios of owners that send the pages that peers read.
func concurrentSends(sends bool) []Scenario[DataStage] {
	if !sends {
		return nil
	}
	type scene = func(p *trial, stage DataStage) Ending
	holding := func(name string, ends []Ending, run scene) Scenario[DataStage] {
		return Scenario[DataStage]{Name: name, Endings: ends, run: run}
	}
	revoked, done := endings(Revoking, effects.OK), endings(Transferring, effects.OK)
	orDone := func(code effects.Code) []Ending { return append(endings(Transferring, effects.OK), failures(code)...) }
	return []Scenario[DataStage]{
		holding("a grant is revoked while two send pages of it", revoked, func(p *trial, stage DataStage) Ending {
			h := holdRead(p, stage, B)
			h.revokeGrant(h.grant)
			expectEndLast(h, B, true, isRevoked(h.grant))
			h.expectUnaffected()
			return Ending{Verb: Revoking}
		}),
		// Two reads of one page under one grant.
		holding("a grant is revoked while two send one page of it", revoked, func(p *trial, stage DataStage) Ending {
			h := holdTwoReads(p, stage, false)
			h.revokeGrant(h.grant)
			expectEndLast(h, B, true, isRevoked(h.grant))
			h.expectUnaffected()
			return Ending{Verb: Revoking}
		}),
		// Two grants: the end of a grant waits only for the thread under that grant, and the read under the second
		// grant continues.
		holding("one of two grants is revoked, and one page sent under both", done, func(p *trial, stage DataStage) Ending {
			h := holdTwoReads(p, stage, true)
			h.revokeGrant(h.grant)
			if h.stage != nil && h.err == nil {
				h.stage.PassFirst(B)
			}
			awaitEvent(h.trial, B, isRevoked(h.grant))
			if h.stage != nil && h.err == nil {
				h.stage.ReleaseAll(B)
			}
			h.expectUnaffected()
			return h.awaitEnd(h.corr)
		}),
		holding("a reader leaves while two send it pages", revoked, func(p *trial, stage DataStage) Ending {
			h := holdRead(p, stage, B)
			h.issue(A, &effects.Drop{Link: h.link.link})
			h.revokeGrant(h.grant)
			expectEndLast(h, B, false, isRevoked(h.grant))
			return Ending{Verb: Revoking}
		}),
		holding("an owner closes while two send its pages", orDone(effects.PeerLost), func(p *trial, stage DataStage) Ending {
			h := holdRead(p, stage, B)
			h.closeDriver(B)
			return h.awaitEnd(h.corr)
		}),
	}
}

// holdTwoReads sets up two threads at B that send the same page, under the same grant or under a grant each, and a read
// of other pages that waits.
func holdTwoReads(p *trial, stage DataStage, two bool) *holdCase {
	l := linkNodes(p, stage)
	h := newHoldCase(l, B)
	half := min(l.a.Pages, l.b.Pages) / 2
	var from []effects.Page
	h.grant, from = grantForReading(l, 0, 1)
	second := h.grant
	if two {
		s := &pullCase{linkCase: l}
		s.grantReads(l.a.Incarnation, from)
		second = s.grant
	}
	startRead(l, h.grant, from, 0) // This read may end in any way.
	if h.stage != nil && h.err == nil {
		h.stage.AwaitHeld(B, 1) // So that this read is the first.
	}
	h.corr = startRead(l, second, from, 1)
	h.awaitHeld()
	h.waitingGrant, from = grantForReading(l, half, half)
	h.waiting = startRead(l, h.waitingGrant, from, half)
	return h
}
