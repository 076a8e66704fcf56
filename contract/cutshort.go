package contract

import "github.com/kvferry/kvferry/effects"

// pushesCutShort returns pushes that are ended in the middle. The exact moment depends on the driver, so most may end
// in several ways.
func pushesCutShort() []Scenario[DataStage] {
	lost := failing(effects.PeerLost)
	return []Scenario[DataStage]{
		pushing("a push is cancelled at once", failing(effects.Cancelled), func(s *aPush) Ending {
			corr := s.start()
			s.do(A, &effects.Cancel{Corr: corr})
			return s.ends(corr)
		}),
		// The initiator gives the push up although everything has arrived: the target may have used it.
		pushing("a push is cancelled before its landing is confirmed", failing(effects.Cancelled), func(s *aPush) Ending {
			s.confirm = nil
			corr := s.start()
			l := until(s.play, B, whatever[*effects.Landed])
			s.do(A, &effects.Cancel{Corr: corr})
			end := s.ends(corr)
			if l != nil {
				s.do(B, &effects.Confirm{Landing: l.Landing})
			}
			return end
		}),
		pushing("a grant is revoked while a push under it is under way",
			append(may(Transferring, effects.OK), failing(effects.Withdrawn)...), func(s *aPush) Ending {
				corr := s.start()
				s.do(B, &effects.Revoke{Grant: s.grant})
				grant, revoked := s.grant, false
				var end Ending
				for s.err == nil && (!revoked || end == Ending{}) {
					at, ev, ok := s.next()
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
		pushing("a link is dropped while a push is under way", lost, func(s *aPush) Ending {
			corr := s.start()
			s.do(A, &effects.Drop{Link: s.link})
			return s.ends(corr)
		}),
		pushing("a link is dropped before a landing is confirmed", lost, func(s *aPush) Ending {
			s.confirm = nil
			corr := s.start()
			until(s.play, B, whatever[*effects.Landed])
			s.do(A, &effects.Drop{Link: s.link})
			return s.ends(corr)
		}),
		pushing("the target dies while a push is under way", lost, func(s *aPush) Ending {
			corr := s.start()
			s.kill(B)
			return s.ends(corr)
		}),
		pushing("the target dies before it confirms a landing", lost, func(s *aPush) Ending {
			s.confirm = nil
			corr := s.start()
			until(s.play, B, whatever[*effects.Landed])
			s.kill(B)
			end := s.ends(corr)
			until(s.play, A, func(e *effects.LinkLost) bool { return e.Link == s.link })
			return end
		}),
		// The machine may issue the push, because the loss was not reported yet.
		pushing("a push to a target that has died", lost, func(s *aPush) Ending {
			s.kill(B)
			return s.ends(s.start())
		}),
		pushing("a push crosses with the loss of its link", lost, func(s *aPush) Ending {
			s.kill(B)
			waits(s.play, A, func(e *effects.LinkLost) bool { return e.Link == s.link })
			return s.ends(s.start())
		}),
		pushing("a link is dropped before its loss is heard of", may(Dropping, effects.OK), func(s *aPush) Ending {
			s.kill(B)
			waits(s.play, A, func(e *effects.LinkLost) bool { return e.Link == s.link })
			return s.drops()
		}),
		pushing("a lost link is dropped", may(Dropping, effects.OK), func(s *aPush) Ending {
			s.kill(B)
			until(s.play, A, func(e *effects.LinkLost) bool { return e.Link == s.link })
			return s.drops()
		}),
		// The owner of the pages is notified, and its revocation completes.
		{Name: "the initiator dies before its landing is confirmed", May: may(Revoking, effects.OK),
			run: func(p *play, stage DataStage) Ending {
				s := newPush(p, stage)
				who := s.a.Incarnation
				s.confirm = nil
				s.start()
				until(p, B, whatever[*effects.Landed])
				s.kill(A)
				until(p, B, func(e *effects.LinkLost) bool { return e.Peer == who && e.Link == 0 })
				s.revokes()
				return Ending{Of: Revoking}
			}},
	}
}
