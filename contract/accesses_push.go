package contract

import "github.com/kvferry/kvferry/effects"

// holdPush sets up two threads at B that are at pages of a push of half of all pages, and a push of the second half,
// under another grant, that waits.
func holdPush(p *trial, stage DataStage) *holdCase {
	l := linkNodes(p, stage)
	h := newHoldCase(l, B)
	half := min(l.a.Pages, l.b.Pages) / 2
	push := func(first uint32) (effects.Corr, effects.GrantID) {
		s := &pushCase{linkCase: l, from: l.fillPages(A, first, half)}
		s.grant, s.into = l.grantPages(l.a.Incarnation, first, half, l.b.PageBytes)
		return s.startTransfer(), s.grant
	}
	h.corr, h.grant = push(0)
	h.awaitHeld()
	h.waiting, h.waitingGrant = push(half)
	return h
}

func concurrentPushes() []Scenario[DataStage] {
	holding := func(name string, ends []Ending, run func(h *holdCase) Ending) Scenario[DataStage] {
		return Scenario[DataStage]{Name: name, Endings: ends, run: func(p *trial, stage DataStage) Ending {
			return run(holdPush(p, stage))
		}}
	}
	revoked := endings(Revoking, effects.OK)
	return []Scenario[DataStage]{
		holding("a grant is revoked while two are at its pages", revoked, func(h *holdCase) Ending {
			h.revokeGrant(h.grant)
			expectEndLast(h, B, true, isRevoked(h.grant))
			h.expectUnaffected()
			return Ending{Verb: Revoking}
		}),
		// The threads are at pages of another grant, which need not be awaited.
		holding("a grant is revoked while others are at pages of another", revoked, func(h *holdCase) Ending {
			h.revokeGrant(h.waitingGrant)
			awaitEvent(h.trial, B, isRevoked(h.waitingGrant))
			if h.stage != nil && h.err == nil {
				h.stage.ReleaseAll(B)
			}
			if end := h.awaitEnd(h.corr); h.err == nil && end.Code != effects.OK {
				h.fail("a push that nothing happened to ended as %v", end)
			}
			return Ending{Verb: Revoking}
		}),
		holding("a push is cancelled while two are at its pages", failures(effects.Cancelled), func(h *holdCase) Ending {
			h.issue(A, &effects.Cancel{Corr: h.corr})
			end := h.awaitSettled(h.corr, true)
			h.expectUnaffected()
			return end
		}),
		// The grant may be revoked then, and the revocation completes when the threads have left.
		holding("a push is cancelled and its grant revoked while two are at its pages", revoked, func(h *holdCase) Ending {
			h.issue(A, &effects.Cancel{Corr: h.corr})
			h.revokeGrant(h.grant)
			expectEndLast(h, B, true, isRevoked(h.grant))
			h.expectUnaffected()
			return Ending{Verb: Revoking}
		}),
		holding("a link is dropped while two are at pages of its push", revoked, func(h *holdCase) Ending {
			h.issue(A, &effects.Drop{Link: h.link.link})
			expectEndLast(h, B, false, h.isInitiatorLost())
			return h.revokeAfterwards()
		}),
		holding("a link is dropped and a grant revoked while two are at pages of its push", revoked, func(h *holdCase) Ending {
			h.issue(A, &effects.Drop{Link: h.link.link})
			h.revokeGrant(h.grant)
			expectEndLast(h, B, false, isRevoked(h.grant))
			return Ending{Verb: Revoking}
		}),
		holding("the initiator dies while two are at pages of its push", revoked, func(h *holdCase) Ending {
			h.killNode(A)
			expectEndLast(h, B, false, h.isInitiatorLost())
			return h.revokeAfterwards()
		}),
		holding("the target closes while two are at its pages", failures(effects.PeerLost), func(h *holdCase) Ending {
			h.closeDriver(B)
			return h.awaitEnd(h.corr)
		}),
	}
}

// revokeAfterwards revokes the grant after the last thread has left its pages.
func (h *holdCase) revokeAfterwards() Ending {
	h.revokeGrant(h.grant)
	awaitEvent(h.trial, B, isRevoked(h.grant))
	return Ending{Verb: Revoking}
}
