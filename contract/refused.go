package contract

import "github.com/kvferry/kvferry/effects"

// pushesRefused returns pushes that the driver or the owner of the pages must refuse. A correct machine may issue these
// pushes nevertheless, because the machine cannot know better, or because a peer lied to the machine.
func pushesRefused() []Scenario[DataStage] {
	return []Scenario[DataStage]{
		{Name: "an import of another incarnation", May: may(Importing, effects.Stale),
			run: func(p *play, stage DataStage) Ending {
				s := strangers(p, stage)
				other := s.b.Incarnation
				other[3]++
				ev := s.imports(other)
				end, _ := EndingOf(&ev)
				return end
			}},
		// Stale: another incarnation of the peer is present by now.
		{Name: "an import of a peer that is gone", May: may(Importing, effects.Unreachable, effects.Stale),
			run: func(p *play, stage DataStage) Ending {
				s := strangers(p, stage)
				s.kill(B)
				ev := s.imports(s.b.Incarnation)
				end, _ := EndingOf(&ev)
				return end
			}},
		pushing("a push after its time", may(Transferring, effects.Expired), func(s *aPush) Ending {
			e := s.transfer()
			e.NotAfter = s.stage.Now(A) - 1
			return s.ended(e)
		}),
		pushing("a push under a grant that was revoked", failing(effects.Withdrawn), func(s *aPush) Ending {
			s.revokes()
			return s.ends(s.start())
		}),
		pushing("a push under a grant that never was", failing(effects.Withdrawn), func(s *aPush) Ending {
			e := s.transfer()
			e.Grant += 7
			return s.ended(e)
		}),
		pushing("a push under a grant of another peer", failing(effects.Refused), func(s *aPush) Ending {
			other := s.a.Incarnation
			other[5]++
			s.grant, s.into = s.grants(other, pushPages, pushPages, s.b.PageBytes)
			return s.ends(s.start())
		}),
		pushing("a push under a bearer grant", failing(effects.Withdrawn), func(s *aPush) Ending {
			s.grant, s.into = s.grants(effects.Incarnation{}, pushPages, pushPages, s.b.PageBytes)
			return s.ends(s.start())
		}),
		pushing("a push to a page outside the grant", failing(effects.Withdrawn), func(s *aPush) Ending {
			e := s.transfer()
			e.Pairs[1].Remote.Index = pushPages + 1
			return s.ended(e)
		}),
		pushing("a push into another generation of a page", failing(effects.Stale), func(s *aPush) Ending {
			e := s.transfer()
			e.Pairs[2].Remote.Generation += 100
			return s.ended(e)
		}),
		pushing("a push of more bytes than granted", failing(effects.TooLarge), func(s *aPush) Ending {
			s.grant, s.into = s.grants(s.a.Incarnation, pushPages, pushPages, s.b.PageBytes/2)
			return s.ends(s.start())
		}),
		pushing("a page that landed is pushed again", failing(effects.Withdrawn), func(s *aPush) Ending {
			whole, into := s.from, s.into
			s.from, s.into = s.from[:1], s.into[:1]
			s.wants(s.ends(s.start()), effects.OK)
			s.from, s.into = whole, into
			return s.ends(s.start())
		}),
		// The driver admits one push; for the second push, the page is claimed, or has landed.
		pushing("two pushes to the same pages", failing(effects.Refused, effects.Withdrawn), func(s *aPush) Ending {
			one, two := s.transfer(), s.transfer()
			s.do(A, one)
			s.do(A, two)
			ends := map[effects.Corr]Ending{}
			for len(ends) < 2 && s.err == nil {
				if ev := until(s.play, A, whatever[*effects.TransferDone]); ev != nil {
					ends[ev.Corr], _ = EndingOf(ev)
				}
			}
			x, y := ends[one.Corr], ends[two.Corr]
			if y.Code == effects.OK {
				x, y = y, x
			}
			s.wants(x, effects.OK)
			return y
		}),
	}
}
