package contract

import "github.com/kvferry/kvferry/effects"

// interruptedPushes returns pushes that are ended in the middle. The exact moment depends on the driver, so most may
// end in several ways.
func interruptedPushes() []Scenario[DataStage] {
	lost := failures(effects.PeerLost)
	return []Scenario[DataStage]{
		pushScenario("a push is cancelled at once", failures(effects.Cancelled), func(s *pushCase) Ending {
			corr := s.startTransfer()
			s.issue(A, &effects.Cancel{Corr: corr})
			return s.awaitEnd(corr)
		}),
		// The initiator gives the push up although everything has arrived: the target may have used it.
		pushScenario("a push is cancelled before its landing is confirmed", failures(effects.Cancelled), func(s *pushCase) Ending {
			s.confirm = nil
			corr := s.startTransfer()
			l := awaitNew(s.trial, B, anyEvent[*effects.Landed])
			s.issue(A, &effects.Cancel{Corr: corr})
			end := s.awaitEnd(corr)
			if l != nil {
				s.issue(B, &effects.Confirm{Landing: l.Landing})
			}
			return end
		}),
		pushScenario("a grant is revoked while a push under it is under way",
			append(endings(Transferring, effects.OK), failures(effects.Withdrawn)...), func(s *pushCase) Ending {
				corr := s.startTransfer()
				s.issue(B, &effects.Revoke{Grant: s.grant})
				grant, revoked := s.grant, false
				var end Ending
				for s.err == nil && (!revoked || end == Ending{}) {
					at, ev, ok := s.nextEvent()
					if !ok {
						s.fail("neither the end of the push nor that of the revocation came")
						break
					}
					switch e := ev.(type) {
					case *effects.Revoked:
						revoked = revoked || at == B && e.Grant == grant
					case *effects.TransferDone:
						if e.Corr == corr {
							end, _ = EndingOf(e)
						}
					default: // The function next confirms landings.
					}
				}
				return end
			}),
		pushScenario("a link is dropped while a push is under way", lost, func(s *pushCase) Ending {
			corr := s.startTransfer()
			s.issue(A, &effects.Drop{Link: s.link})
			return s.awaitEnd(corr)
		}),
		pushScenario("a link is dropped before a landing is confirmed", lost, func(s *pushCase) Ending {
			s.confirm = nil
			corr := s.startTransfer()
			awaitNew(s.trial, B, anyEvent[*effects.Landed])
			s.issue(A, &effects.Drop{Link: s.link})
			return s.awaitEnd(corr)
		}),
		pushScenario("the target dies while a push is under way", lost, func(s *pushCase) Ending {
			corr := s.startTransfer()
			s.killNode(B)
			return s.awaitEnd(corr)
		}),
		pushScenario("the target dies before it confirms a landing", lost, func(s *pushCase) Ending {
			s.confirm = nil
			corr := s.startTransfer()
			awaitNew(s.trial, B, anyEvent[*effects.Landed])
			s.killNode(B)
			end := s.awaitEnd(corr)
			awaitNew(s.trial, A, func(e *effects.LinkLost) bool { return e.Link == s.link })
			return end
		}),
		// The machine may issue the push, because the loss was not reported yet.
		pushScenario("a push to a target that has died", lost, func(s *pushCase) Ending {
			s.killNode(B)
			return s.awaitEnd(s.startTransfer())
		}),
		pushScenario("a push crosses with the loss of its link", lost, func(s *pushCase) Ending {
			s.killNode(B)
			queueUntil(s.trial, A, func(e *effects.LinkLost) bool { return e.Link == s.link })
			return s.awaitEnd(s.startTransfer())
		}),
		pushScenario("a link is dropped before its loss is heard of", endings(Dropping, effects.OK), func(s *pushCase) Ending {
			s.killNode(B)
			queueUntil(s.trial, A, func(e *effects.LinkLost) bool { return e.Link == s.link })
			return s.dropLink()
		}),
		pushScenario("a lost link is dropped", endings(Dropping, effects.OK), func(s *pushCase) Ending {
			s.killNode(B)
			awaitNew(s.trial, A, func(e *effects.LinkLost) bool { return e.Link == s.link })
			return s.dropLink()
		}),
		// The owner of the pages is notified, and its revocation completes.
		{Name: "the initiator dies before its landing is confirmed", Endings: endings(Revoking, effects.OK),
			run: func(p *trial, stage DataStage) Ending {
				s := newPushCase(p, stage)
				initiator := s.a.Incarnation
				s.confirm = nil
				s.startTransfer()
				awaitNew(p, B, anyEvent[*effects.Landed])
				s.killNode(A)
				awaitNew(p, B, func(e *effects.LinkLost) bool { return e.Peer == initiator && e.Link == 0 })
				s.revokeGrant()
				return Ending{Verb: Revoking}
			}},
	}
}
