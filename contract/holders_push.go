package contract

import "github.com/kvferry/kvferry/effects"

// pushedInto sets up two threads at B that are at pages of a push of half of all pages, and a push of the second half,
// under another grant, that waits.
func pushedInto(p *play, stage DataStage) *holders {
	l := linked(p, stage)
	h := hold(l, B)
	half := min(l.a.Pages, l.b.Pages) / 2
	push := func(first uint32) (effects.Corr, effects.GrantID) {
		s := &aPush{aLink: l, from: l.fills(A, first, half)}
		s.grant, s.into = l.grants(l.a.Incarnation, first, half, l.b.PageBytes)
		return s.start(), s.grant
	}
	h.corr, h.grant = push(0)
	h.stand()
	h.beside, h.other = push(half)
	return h
}

func holdersOfPushes() []Scenario[DataStage] {
	holding := func(name string, ends []Ending, run func(h *holders) Ending) Scenario[DataStage] {
		return Scenario[DataStage]{Name: name, May: ends, run: func(p *play, stage DataStage) Ending {
			return run(pushedInto(p, stage))
		}}
	}
	revoked := may(Revoking, effects.OK)
	return []Scenario[DataStage]{
		holding("a grant is revoked while two are at its pages", revoked, func(h *holders) Ending {
			h.revoke(h.grant)
			quiet(h, B, true, isRevoked(h.grant))
			h.innocent()
			return Ending{Of: Revoking}
		}),
		// The threads are at pages of another grant, which need not be awaited.
		holding("a grant is revoked while others are at pages of another", revoked, func(h *holders) Ending {
			h.revoke(h.other)
			eventually(h.play, B, isRevoked(h.other))
			if h.stage != nil && h.err == nil {
				h.stage.Frees(B)
			}
			if end := h.ends(h.corr); h.err == nil && end.Code != effects.OK {
				h.fail("a push that nothing happened to ended as %v", end)
			}
			return Ending{Of: Revoking}
		}),
		holding("a push is cancelled while two are at its pages", failing(effects.Cancelled), func(h *holders) Ending {
			h.do(A, &effects.Cancel{Corr: h.corr})
			end := h.ended(h.corr, true)
			h.innocent()
			return end
		}),
		// The grant may be revoked then, and the revocation completes when the threads have left.
		holding("a push is cancelled and its grant revoked while two are at its pages", revoked, func(h *holders) Ending {
			h.do(A, &effects.Cancel{Corr: h.corr})
			h.revoke(h.grant)
			quiet(h, B, true, isRevoked(h.grant))
			h.innocent()
			return Ending{Of: Revoking}
		}),
		holding("a link is dropped while two are at pages of its push", revoked, func(h *holders) Ending {
			h.do(A, &effects.Drop{Link: h.peers.link})
			quiet(h, B, false, h.left())
			return h.revokedAfter()
		}),
		holding("a link is dropped and a grant revoked while two are at pages of its push", revoked, func(h *holders) Ending {
			h.do(A, &effects.Drop{Link: h.peers.link})
			h.revoke(h.grant)
			quiet(h, B, false, isRevoked(h.grant))
			return Ending{Of: Revoking}
		}),
		holding("the initiator dies while two are at pages of its push", revoked, func(h *holders) Ending {
			h.kill(A)
			quiet(h, B, false, h.left())
			return h.revokedAfter()
		}),
		holding("the target closes while two are at its pages", failing(effects.PeerLost), func(h *holders) Ending {
			h.closed(B)
			return h.ends(h.corr)
		}),
	}
}

// revokedAfter revokes the grant after the last thread has left its pages.
func (h *holders) revokedAfter() Ending {
	h.revoke(h.grant)
	eventually(h.play, B, isRevoked(h.grant))
	return Ending{Of: Revoking}
}
