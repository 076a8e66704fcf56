package contract

import "github.com/kvferry/kvferry/effects"

// refusedPulls returns reads that the driver or the owner of the pages must refuse. A correct machine may issue these
// reads nevertheless, because the machine cannot know better, or because a peer lied to the machine.
func refusedPulls() []Scenario[DataStage] {
	return []Scenario[DataStage]{
		pullScenario("a read after its time", endings(Transferring, effects.Expired), func(s *pullCase) Ending {
			e := s.newTransfer()
			e.NotAfter = s.stage.Now(A) - 1
			return s.runTransfer(e)
		}),
		pullScenario("a read from another incarnation", endings(Transferring, effects.Stale), func(s *pullCase) Ending {
			e := s.newTransfer()
			e.Peer[3]++
			return s.runTransfer(e)
		}),
		pullScenario("a read from another buffer", endings(Transferring, effects.Stale), func(s *pullCase) Ending {
			e := s.newTransfer()
			e.Pairs[1].Remote.Buffer[3]++
			return s.runTransfer(e)
		}),
		pullScenario("a read under a grant that was revoked", failures(effects.Withdrawn), func(s *pullCase) Ending {
			s.revokeGrant()
			return s.awaitEnd(s.startTransfer())
		}),
		pullScenario("a read under a grant that never was", failures(effects.Withdrawn), func(s *pullCase) Ending {
			e := s.newTransfer()
			e.Grant += 7
			return s.runTransfer(e)
		}),
		pullScenario("a read under a grant that is over, of pages under a newer one", failures(effects.Withdrawn),
			func(s *pullCase) Ending {
				old := s.grant
				s.revokeGrant()
				s.grantReads(s.a.Incarnation, s.from)
				s.grant = old
				return s.awaitEnd(s.startTransfer())
			}),
		pullScenario("a read under a grant of another peer", failures(effects.Refused), func(s *pullCase) Ending {
			s.revokeGrant()
			other := s.a.Incarnation
			other[5]++
			s.grantReads(other, s.from)
			return s.awaitEnd(s.startTransfer())
		}),
		pullScenario("a read under a bearer grant", failures(effects.Withdrawn), func(s *pullCase) Ending {
			s.revokeGrant()
			s.grantReads(effects.Incarnation{}, s.from)
			return s.awaitEnd(s.startTransfer())
		}),
		pullScenario("a read under a grant to store", failures(effects.Withdrawn), func(s *pullCase) Ending {
			s.grant, s.from = s.grantPages(s.a.Incarnation, pullPages, pullPages, s.b.PageBytes)
			return s.awaitEnd(s.startTransfer())
		}),
		pullScenario("a push under a grant to read", failures(effects.Withdrawn), func(s *pullCase) Ending {
			push := &pushCase{linkCase: s.linkCase, from: s.fillPages(A, pullPages, pullPages), into: s.from}
			return push.awaitEnd(push.startTransfer())
		}),
		// The generation is right; only the grant for this page is missing.
		pullScenario("a read of a page that is not granted", failures(effects.Withdrawn), func(s *pullCase) Ending {
			s.from[1] = s.fillPages(B, pullPages, 1)[0]
			return s.awaitEnd(s.startTransfer())
		}),
		pullScenario("a read of another generation of a page", failures(effects.Stale), func(s *pullCase) Ending {
			e := s.newTransfer()
			e.Pairs[2].Remote.Generation += 100
			return s.runTransfer(e)
		}),
		pullScenario("a read of other bytes than were stated", failures(effects.Corrupt), func(s *pullCase) Ending {
			e := s.newTransfer()
			e.Pairs[1].Remote.Sum = wrongSum
			return s.runTransfer(e)
		}),
		pullScenario("a read of more bytes than granted", failures(effects.TooLarge), func(s *pullCase) Ending {
			s.revokeGrant()
			short := s.fillPages(B, pullPages, pullPages)
			for i := range short {
				short[i].Length /= 2
			}
			s.from = short
			s.grantReads(s.a.Incarnation, s.from)
			return s.awaitEnd(s.startTransfer())
		}),
	}
}
