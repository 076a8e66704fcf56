package contract

import "github.com/kvferry/kvferry/effects"

// pullsCutShort returns reads that are ended in the middle. No second node has to confirm a read, so each read may have
// completed before.
func pullsCutShort() []Scenario[DataStage] {
	orDone := func(code effects.Code) []Ending { return append(may(Transferring, effects.OK), failing(code)...) }
	return []Scenario[DataStage]{
		pulling("a read is cancelled at once", orDone(effects.Cancelled), func(s *aPull) Ending {
			corr := s.start()
			s.do(A, &effects.Cancel{Corr: corr})
			return s.ends(corr)
		}),
		pulling("one of two reads is cancelled", may(Transferring, effects.OK), func(s *aPull) Ending {
			one := s.start()
			s.into = s.takes(pullPages)
			two := s.start()
			s.do(A, &effects.Cancel{Corr: one})
			_, y := s.both(one, two)
			return y
		}),
		pulling("a grant is revoked while a read under it is under way", orDone(effects.Withdrawn), func(s *aPull) Ending {
			corr := s.start()
			s.do(B, &effects.Revoke{Grant: s.grant})
			return s.endsAndRevoked(corr)
		}),
		// From Revoked on the owner may use the page for anything, whatever the reader does.
		pulling("a page is used again while a read of it is under way", orDone(effects.Withdrawn), func(s *aPull) Ending {
			corr := s.start()
			s.do(B, &effects.Revoke{Grant: s.grant})
			var end Ending
			for s.err == nil {
				at, ev, ok := s.next()
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
			s.fills(B, 0, pullPages)
			if end == (Ending{}) {
				end = s.ends(corr)
			}
			return end
		}),
		pulling("a link is dropped while a read is under way", orDone(effects.PeerLost), func(s *aPull) Ending {
			corr := s.start()
			s.do(A, &effects.Drop{Link: s.link})
			return s.ends(corr)
		}),
		pulling("the owner dies while a read is under way", orDone(effects.PeerLost), func(s *aPull) Ending {
			corr := s.start()
			s.kill(B)
			return s.ends(corr)
		}),
		// The pages of the dead owner may still be present and unchanged, because nothing stores into the pages.
		pulling("a read from an owner that has died", orDone(effects.PeerLost), func(s *aPull) Ending {
			s.kill(B)
			return s.ends(s.start())
		}),
		pulling("a read crosses with the loss of its link", failing(effects.PeerLost), func(s *aPull) Ending {
			s.kill(B)
			waits(s.play, A, func(e *effects.LinkLost) bool { return e.Link == s.link })
			return s.ends(s.start())
		}),
		// The owner is notified, and its revocation completes.
		{Name: "the reader dies while a read is under way", May: may(Revoking, effects.OK),
			run: func(p *play, stage DataStage) Ending {
				s := newPull(p, stage)
				who := s.a.Incarnation
				s.start()
				s.kill(A)
				until(p, B, func(e *effects.LinkLost) bool { return e.Peer == who && e.Link == 0 })
				s.revokes()
				return Ending{Of: Revoking}
			}},
	}
}

// endsAndRevoked waits for the end of a transfer and of the revocation of its grant, in either order.
func (s *aPull) endsAndRevoked(corr effects.Corr) (end Ending) {
	for revoked := false; s.err == nil && (!revoked || end == Ending{}); {
		at, ev, ok := s.next()
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
