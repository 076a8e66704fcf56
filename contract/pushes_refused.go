package contract

import "github.com/kvferry/kvferry/effects"

// refusedPushes returns pushes that the driver or the owner of the pages must refuse. A correct machine may issue these
// pushes nevertheless, because the machine cannot know better, or because a peer lied to the machine.
func refusedPushes() []Scenario[DataStage] {
	return []Scenario[DataStage]{
		{Name: "an import of another incarnation", Endings: endings(Importing, effects.Stale),
			run: func(p *trial, stage DataStage) Ending {
				s := unlinkedNodes(p, stage)
				other := s.b.Incarnation
				other[3]++
				ev := s.importPeer(other)
				end, _ := EndingOf(&ev)
				return end
			}},
		// Stale: another incarnation of the peer is present by now.
		{Name: "an import of a peer that is gone", Endings: endings(Importing, effects.Unreachable, effects.Stale),
			run: func(p *trial, stage DataStage) Ending {
				s := unlinkedNodes(p, stage)
				s.killNode(B)
				ev := s.importPeer(s.b.Incarnation)
				end, _ := EndingOf(&ev)
				return end
			}},
		pushScenario("a push of other bytes than were stated", failures(effects.Corrupt), func(s *pushCase) Ending {
			s.revokeGrant()
			s.grant, s.into = s.grantSums(s.a.Incarnation, 0, pushPages, s.b.PageBytes, wrongSum)
			end := s.awaitEnd(s.startTransfer())
			landed := awaitEvent(s.trial, B, func(e *effects.Landed) bool { return e.Grant == s.grant })
			if landed != nil && (landed.Corrupt == 0 || len(landed.Pages) > 0) {
				s.fail("%d pages landed, and %d are said to be corrupt", len(landed.Pages), landed.Corrupt)
			}
			return end
		}),
		pushScenario("a push after its time", endings(Transferring, effects.Expired), func(s *pushCase) Ending {
			e := s.newTransfer()
			e.NotAfter = s.stage.Now(A) - 1
			return s.runTransfer(e)
		}),
		pushScenario("a push under a grant that was revoked", failures(effects.Withdrawn), func(s *pushCase) Ending {
			s.revokeGrant()
			return s.awaitEnd(s.startTransfer())
		}),
		pushScenario("a push under a grant that never was", failures(effects.Withdrawn), func(s *pushCase) Ending {
			e := s.newTransfer()
			e.Grant += 7
			return s.runTransfer(e)
		}),
		pushScenario("a push under a grant of another peer", failures(effects.Refused), func(s *pushCase) Ending {
			other := s.a.Incarnation
			other[5]++
			s.grant, s.into = s.grantPages(other, pushPages, pushPages, s.b.PageBytes)
			return s.awaitEnd(s.startTransfer())
		}),
		pushScenario("a push under a bearer grant", failures(effects.Withdrawn), func(s *pushCase) Ending {
			s.grant, s.into = s.grantPages(effects.Incarnation{}, pushPages, pushPages, s.b.PageBytes)
			return s.awaitEnd(s.startTransfer())
		}),
		pushScenario("a push to a page outside the grant", failures(effects.Withdrawn), func(s *pushCase) Ending {
			e := s.newTransfer()
			e.Pairs[1].Remote.Index = pushPages + 1
			return s.runTransfer(e)
		}),
		pushScenario("a push into another generation of a page", failures(effects.Stale), func(s *pushCase) Ending {
			e := s.newTransfer()
			e.Pairs[2].Remote.Generation += 100
			return s.runTransfer(e)
		}),
		pushScenario("a push of more bytes than granted", failures(effects.TooLarge), func(s *pushCase) Ending {
			s.grant, s.into = s.grantPages(s.a.Incarnation, pushPages, pushPages, s.b.PageBytes/2)
			return s.awaitEnd(s.startTransfer())
		}),
		pushScenario("a page that landed is pushed again", failures(effects.Withdrawn), func(s *pushCase) Ending {
			whole, into := s.from, s.into
			s.from, s.into = s.from[:1], s.into[:1]
			s.expectCode(s.awaitEnd(s.startTransfer()), effects.OK)
			s.from, s.into = whole, into
			return s.awaitEnd(s.startTransfer())
		}),
		// The driver admits one push; for the second push, the page is claimed, or has landed.
		pushScenario("two pushes to the same pages", failures(effects.Refused, effects.Withdrawn), func(s *pushCase) Ending {
			one, two := s.newTransfer(), s.newTransfer()
			s.issue(A, one)
			s.issue(A, two)
			ends := map[effects.Corr]Ending{}
			for len(ends) < 2 && s.err == nil {
				if ev := awaitNew(s.trial, A, anyEvent[*effects.TransferDone]); ev != nil {
					ends[ev.Corr], _ = EndingOf(ev)
				}
			}
			x, y := ends[one.Corr], ends[two.Corr]
			if y.Code == effects.OK {
				x, y = y, x
			}
			s.expectCode(x, effects.OK)
			return y
		}),
	}
}
