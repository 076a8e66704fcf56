package contract

import "github.com/kvferry/kvferry/effects"

// pullsRefused returns reads that the driver or the owner of the pages must refuse. A correct machine may issue these
// reads nevertheless, because the machine cannot know better, or because a peer lied to the machine.
func pullsRefused() []Scenario[DataStage] {
	return []Scenario[DataStage]{
		pulling("a read after its time", may(Transferring, effects.Expired), func(s *aPull) Ending {
			e := s.transfer()
			e.NotAfter = s.stage.Now(A) - 1
			return s.ended(e)
		}),
		pulling("a read from another incarnation", may(Transferring, effects.Stale), func(s *aPull) Ending {
			e := s.transfer()
			e.Peer[3]++
			return s.ended(e)
		}),
		pulling("a read from another buffer", may(Transferring, effects.Stale), func(s *aPull) Ending {
			e := s.transfer()
			e.Pairs[1].Remote.Buffer[3]++
			return s.ended(e)
		}),
		pulling("a read under a grant that was revoked", failing(effects.Withdrawn), func(s *aPull) Ending {
			s.revokes()
			return s.ends(s.start())
		}),
		pulling("a read under a grant that never was", failing(effects.Withdrawn), func(s *aPull) Ending {
			e := s.transfer()
			e.Grant += 7
			return s.ended(e)
		}),
		pulling("a read under a grant that is over, of pages under a newer one", failing(effects.Withdrawn),
			func(s *aPull) Ending {
				old := s.grant
				s.revokes()
				s.offers(s.a.Incarnation, s.from)
				s.grant = old
				return s.ends(s.start())
			}),
		pulling("a read under a grant of another peer", failing(effects.Refused), func(s *aPull) Ending {
			s.revokes()
			other := s.a.Incarnation
			other[5]++
			s.offers(other, s.from)
			return s.ends(s.start())
		}),
		pulling("a read under a bearer grant", failing(effects.Withdrawn), func(s *aPull) Ending {
			s.revokes()
			s.offers(effects.Incarnation{}, s.from)
			return s.ends(s.start())
		}),
		pulling("a read under a grant to store", failing(effects.Withdrawn), func(s *aPull) Ending {
			s.grant, s.from = s.grants(s.a.Incarnation, pullPages, pullPages, s.b.PageBytes)
			return s.ends(s.start())
		}),
		pulling("a push under a grant to read", failing(effects.Withdrawn), func(s *aPull) Ending {
			push := &aPush{aLink: s.aLink, from: s.fills(A, pullPages, pullPages), into: s.from}
			return push.ends(push.start())
		}),
		// The generation is right; only the grant for this page is missing.
		pulling("a read of a page that is not granted", failing(effects.Withdrawn), func(s *aPull) Ending {
			s.from[1] = s.fills(B, pullPages, 1)[0]
			return s.ends(s.start())
		}),
		pulling("a read of another generation of a page", failing(effects.Stale), func(s *aPull) Ending {
			e := s.transfer()
			e.Pairs[2].Remote.Generation += 100
			return s.ended(e)
		}),
		pulling("a read of more bytes than granted", failing(effects.TooLarge), func(s *aPull) Ending {
			s.revokes()
			short := s.fills(B, pullPages, pullPages)
			for i := range short {
				short[i].Length /= 2
			}
			s.from = short
			s.offers(s.a.Incarnation, s.from)
			return s.ends(s.start())
		}),
	}
}
