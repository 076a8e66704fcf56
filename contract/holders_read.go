package contract

import "github.com/kvferry/kvferry/effects"

// reads starts a read of pages of B that are granted to A for reading, into as many pages of A.
func reads(l aLink, grant effects.GrantID, from []effects.Page, first uint32) effects.Corr {
	s := &aPull{aLink: l, from: from}
	s.grant = grant
	s.into = l.life(A, first, uint32(len(from)), l.a.PageBytes)
	l.do(A, &effects.Publish{Pages: s.into})
	return s.start()
}

// lends stores content in pages of B and grants the pages to A for reading.
func lends(l aLink, first, n uint32) (effects.GrantID, []effects.Page) {
	s := &aPull{aLink: l, from: l.fills(B, first, n)}
	s.offers(l.a.Incarnation, s.from)
	return s.grant, s.from
}

// readFrom sets up two threads at one node that are at pages of a read of half of all pages, and a read of the second
// half, under another grant, that waits.
func readFrom(p *play, stage DataStage, at End) *holders {
	l := linked(p, stage)
	h := hold(l, at)
	half := min(l.a.Pages, l.b.Pages) / 2
	read := func(first uint32) (effects.Corr, effects.GrantID) {
		grant, from := lends(l, first, half)
		return reads(l, grant, from, first), grant
	}
	h.corr, h.grant = read(0)
	h.stand()
	h.beside, h.other = read(half)
	return h
}

func holdersOfReads() []Scenario[DataStage] {
	holding := func(name string, ends []Ending, run func(h *holders) Ending) Scenario[DataStage] {
		return Scenario[DataStage]{Name: name, May: ends, run: func(p *play, stage DataStage) Ending {
			return run(readFrom(p, stage, A))
		}}
	}
	orDone := func(code effects.Code) []Ending { return append(may(Transferring, effects.OK), failing(code)...) }
	return []Scenario[DataStage]{
		holding("a read is cancelled while two are at its pages", orDone(effects.Cancelled), func(h *holders) Ending {
			h.do(A, &effects.Cancel{Corr: h.corr})
			end := h.ended(h.corr, true)
			h.innocent()
			return end
		}),
		// Where only the reader accesses the pages, the owner of the pages need not wait for the reader; the driver never
		// delivers what the reader finds.
		holding("a grant is revoked while two read under it", orDone(effects.Withdrawn), func(h *holders) Ending {
			h.revoke(h.grant)
			eventually(h.play, B, isRevoked(h.grant))
			if h.stage != nil && h.err == nil {
				h.stage.Frees(A)
			}
			end := h.ends(h.corr)
			h.innocent()
			return end
		}),
		holding("a link is dropped while two are at pages of its read", may(Dropping, effects.OK), func(h *holders) Ending {
			h.do(A, &effects.Drop{Link: h.peers.link})
			quiet(h, A, false, func(e *effects.Dropped) bool { return e.Link == h.peers.link })
			return Ending{Of: Dropping}
		}),
		holding("the owner dies while two are at pages that they read", orDone(effects.PeerLost), func(h *holders) Ending {
			h.kill(B)
			return h.lost()
		}),
		holding("the reader closes while two are at its pages", may(Revoking, effects.OK), func(h *holders) Ending {
			h.closed(A)
			return h.revokedAfter()
		}),
	}
}

// awaitLoss waits for the ends of both transfers after the loss of the link, and checks that the first transfer is not
// settled before the last thread has left.
func (h *holders) lost() (end Ending) {
	if h.stage != nil && h.err == nil {
		early := func(ev effects.Event) bool {
			e, is := ev.(*effects.TransferDone)
			s, settled := ev.(*effects.Settled)
			return is && e.Corr == h.corr && e.Settled || settled && s.Corr == h.corr
		}
		if h.stage.Rests(); h.stage.Told(A, early) {
			h.fail("transfer %d is settled while two are at its pages", h.corr)
		}
		h.stage.Leaves(A)
		if h.stage.Rests(); h.stage.Told(A, early) {
			h.fail("transfer %d is settled when the first of two has left its pages", h.corr)
		}
		h.stage.Frees(A)
	}
	return h.ends(h.corr)
}

// holdersWhoSend returns the scenarios of owners that send the pages that peers read.
func holdersWhoSend(sends bool) []Scenario[DataStage] {
	if !sends {
		return nil
	}
	type scene = func(p *play, stage DataStage) Ending
	holding := func(name string, ends []Ending, run scene) Scenario[DataStage] {
		return Scenario[DataStage]{Name: name, May: ends, run: run}
	}
	revoked, done := may(Revoking, effects.OK), may(Transferring, effects.OK)
	orDone := func(code effects.Code) []Ending { return append(may(Transferring, effects.OK), failing(code)...) }
	return []Scenario[DataStage]{
		holding("a grant is revoked while two send pages of it", revoked, func(p *play, stage DataStage) Ending {
			h := readFrom(p, stage, B)
			h.revoke(h.grant)
			quiet(h, B, true, isRevoked(h.grant))
			h.innocent()
			return Ending{Of: Revoking}
		}),
		// Two reads of one page under one grant.
		holding("a grant is revoked while two send one page of it", revoked, func(p *play, stage DataStage) Ending {
			h := sendTwice(p, stage, false)
			h.revoke(h.grant)
			quiet(h, B, true, isRevoked(h.grant))
			h.innocent()
			return Ending{Of: Revoking}
		}),
		// Two grants: the end of a grant waits only for the thread under that grant, and the read under the second grant
		// continues.
		holding("one of two grants is revoked, and one page sent under both", done, func(p *play, stage DataStage) Ending {
			h := sendTwice(p, stage, true)
			h.revoke(h.grant)
			if h.stage != nil && h.err == nil {
				h.stage.Passes(B)
			}
			eventually(h.play, B, isRevoked(h.grant))
			if h.stage != nil && h.err == nil {
				h.stage.Frees(B)
			}
			h.innocent()
			return h.ends(h.corr)
		}),
		holding("a reader leaves while two send it pages", revoked, func(p *play, stage DataStage) Ending {
			h := readFrom(p, stage, B)
			h.do(A, &effects.Drop{Link: h.peers.link})
			h.revoke(h.grant)
			quiet(h, B, false, isRevoked(h.grant))
			return Ending{Of: Revoking}
		}),
		holding("an owner closes while two send its pages", orDone(effects.PeerLost), func(p *play, stage DataStage) Ending {
			h := readFrom(p, stage, B)
			h.closed(B)
			return h.ends(h.corr)
		}),
	}
}

// sendTwice sets up two threads at B that send the same page, under the same grant or under a grant each, and a read of
// other pages that waits.
func sendTwice(p *play, stage DataStage, two bool) *holders {
	l := linked(p, stage)
	h := hold(l, B)
	half := min(l.a.Pages, l.b.Pages) / 2
	var from []effects.Page
	h.grant, from = lends(l, 0, 1)
	second := h.grant
	if two {
		s := &aPull{aLink: l}
		s.offers(l.a.Incarnation, from)
		second = s.grant
	}
	reads(l, h.grant, from, 0) // This read may end in any way.
	if h.stage != nil && h.err == nil {
		h.stage.Stands(B, 1) // So that this read is the first.
	}
	h.corr = reads(l, second, from, 1)
	h.stand()
	h.other, from = lends(l, half, half)
	h.beside = reads(l, h.other, from, half)
	return h
}
