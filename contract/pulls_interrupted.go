package contract

import "github.com/kvferry/kvferry/effects"

// interruptedPulls returns reads that are ended in the middle. No second node has to confirm a read, so each read may
// have completed before.
func interruptedPulls() []Scenario[DataStage] {
	orDone := func(code effects.Code) []Ending { return append(endings(Transferring, effects.OK), failures(code)...) }
	return []Scenario[DataStage]{
		pullScenario("a read is cancelled at once", orDone(effects.Cancelled), func(s *pullCase) Ending {
			corr := s.startTransfer()
			s.issue(A, &effects.Cancel{Corr: corr})
			return s.awaitEnd(corr)
		}),
		pullScenario("one of two reads is cancelled", endings(Transferring, effects.OK), func(s *pullCase) Ending {
			one := s.startTransfer()
			s.into = s.publishTargets(pullPages)
			two := s.startTransfer()
			s.issue(A, &effects.Cancel{Corr: one})
			_, y := s.awaitBoth(one, two)
			return y
		}),
		pullScenario("a grant is revoked while a read under it is under way", orDone(effects.Withdrawn), func(s *pullCase) Ending {
			corr := s.startTransfer()
			s.issue(B, &effects.Revoke{Grant: s.grant})
			return s.awaitEndAndRevoked(corr)
		}),
		// From Revoked on the owner may use the page for anything, whatever the reader does.
		pullScenario("a page is used again while a read of it is under way", orDone(effects.Withdrawn), func(s *pullCase) Ending {
			corr := s.startTransfer()
			s.issue(B, &effects.Revoke{Grant: s.grant})
			var end Ending
			for s.err == nil {
				at, ev, ok := s.nextEvent()
				if !ok {
					s.fail("the revocation never ended")
					break
				}
				if e, is := ev.(*effects.TransferDone); is && e.Corr == corr {
					end, _ = EndingOf(e)
				}
				if e, is := ev.(*effects.Revoked); is && at == B && e.Grant == s.grant {
					break
				}
			}
			s.fillPages(B, 0, pullPages)
			if end == (Ending{}) {
				end = s.awaitEnd(corr)
			}
			return end
		}),
		pullScenario("a link is dropped while a read is under way", orDone(effects.PeerLost), func(s *pullCase) Ending {
			corr := s.startTransfer()
			s.issue(A, &effects.Drop{Link: s.link})
			return s.awaitEnd(corr)
		}),
		pullScenario("the owner dies while a read is under way", orDone(effects.PeerLost), func(s *pullCase) Ending {
			corr := s.startTransfer()
			s.killNode(B)
			return s.awaitEnd(corr)
		}),
		// The pages of the dead owner may still be present and unchanged, because nothing stores into the pages.
		pullScenario("a read from an owner that has died", orDone(effects.PeerLost), func(s *pullCase) Ending {
			s.killNode(B)
			return s.awaitEnd(s.startTransfer())
		}),
		pullScenario("a read crosses with the loss of its link", failures(effects.PeerLost), func(s *pullCase) Ending {
			s.killNode(B)
			queueUntil(s.trial, A, func(e *effects.LinkLost) bool { return e.Link == s.link })
			return s.awaitEnd(s.startTransfer())
		}),
		// The owner is notified, and its revocation completes.
		{Name: "the reader dies while a read is under way", Endings: endings(Revoking, effects.OK),
			run: func(p *trial, stage DataStage) Ending {
				s := newPullCase(p, stage)
				reader := s.a.Incarnation
				s.startTransfer()
				s.killNode(A)
				awaitNew(p, B, func(e *effects.LinkLost) bool { return e.Peer == reader && e.Link == 0 })
				s.revokeGrant()
				return Ending{Verb: Revoking}
			}},
	}
}

// awaitEndAndRevoked waits for the end of a transfer and of the revocation of its grant, in either order.
func (s *pullCase) awaitEndAndRevoked(corr effects.Corr) (end Ending) {
	for revoked := false; s.err == nil && (!revoked || end == Ending{}); {
		at, ev, ok := s.nextEvent()
		if !ok {
			s.fail("neither the end of the read nor that of the revocation came")
			break
		}
		switch e := ev.(type) {
		case *effects.Revoked:
			revoked = revoked || at == B && e.Grant == s.grant
		case *effects.TransferDone:
			if e.Corr == corr {
				end, _ = EndingOf(e)
			}
		default: // Other events do not matter here.
		}
	}
	return end
}
