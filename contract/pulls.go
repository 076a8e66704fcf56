package contract

import "github.com/kvferry/kvferry/effects"

// aPull is a link, pages of B with content that are granted to A for reading, and pages of A for the content.
type aPull struct {
	aLink
	from []effects.Page
	into []effects.Page
}

const pullPages = 3

// newPull sets up what most scenarios need.
func newPull(p *play, stage DataStage) *aPull {
	s := &aPull{aLink: linked(p, stage)}
	s.from = s.fills(B, 0, pullPages)
	s.offers(s.a.Incarnation, s.from)
	s.into = s.takes(0)
	return s
}

// offers grants pages of B for reading, in their present generation.
func (s *aPull) offers(to effects.Incarnation, pages []effects.Page) {
	s.sides[B].grant++
	s.grant = s.sides[B].grant
	s.do(B, &effects.Grant{ID: s.grant, Peer: to, Read: true, Pages: pages})
}

// takes publishes pages of A to read into.
func (s *aPull) takes(first uint32) []effects.Page {
	pages := s.life(A, first, pullPages, s.a.PageBytes)
	s.do(A, &effects.Publish{Pages: pages})
	return pages
}

// transfer returns the read as an effect, which the scenario may change before the read begins.
func (s *aPull) transfer() *effects.Transfer {
	e := &effects.Transfer{Corr: s.corr(A), Link: s.link, Peer: s.b.Incarnation, Grant: s.grant, Read: true,
		NotAfter: s.stage.Now(A).Add(60 * effects.Second)}
	for i, page := range s.into {
		e.Pairs = append(e.Pairs, effects.Pair{Local: page,
			Remote: effects.RemotePage{Buffer: s.b.Buffer, Index: s.from[i].Index, Generation: s.from[i].Generation}})
	}
	return e
}

func (s *aPull) start() effects.Corr {
	e := s.transfer()
	s.do(A, e)
	return e.Corr
}

// both waits for the ends of two transfers, in either order, and for the Settled events that follow.
func (s *aPull) both(one, two effects.Corr) (x, y Ending) {
	ends, owed := map[effects.Corr]Ending{}, 2
	for owed > 0 && s.err == nil {
		_, ev, ok := s.next()
		if !ok {
			s.fail("%d ends of two transfers never came", owed)
		}
		switch e := ev.(type) {
		case *effects.TransferDone:
			ends[e.Corr], _ = EndingOf(e)
			if e.Settled {
				owed--
			}
		case *effects.Settled:
			owed--
		default: // Other events do not matter here.
		}
	}
	return ends[one], ends[two]
}

func pulling(name string, ends []Ending, run func(s *aPull) Ending) Scenario[DataStage] {
	return Scenario[DataStage]{Name: name, May: ends,
		run: func(p *play, stage DataStage) Ending { return run(newPull(p, stage)) }}
}

// Pulls returns the scenarios of reads on fenced data planes. In most scenarios the owner of the pages is passive: a
// plane may carry reads out without the owner's process.
func Pulls() []Scenario[DataStage] {
	return append(append(pullsInPeace(), pullsRefused()...), pullsCutShort()...)
}

func pullsInPeace() []Scenario[DataStage] {
	done := may(Transferring, effects.OK)
	return []Scenario[DataStage]{
		pulling("a read arrives", done, func(s *aPull) Ending { return s.ends(s.start()) }),
		pulling("pages are read again under the same grant", done, func(s *aPull) Ending {
			s.wants(s.ends(s.start()), effects.OK)
			s.into = s.takes(0)
			return s.ends(s.start())
		}),
		pulling("two reads of the same pages at once", done, func(s *aPull) Ending {
			one := s.start()
			s.into = s.takes(pullPages)
			x, y := s.both(one, s.start())
			s.wants(x, effects.OK)
			return y
		}),
		pulling("pages under two grants are read when one is over", done, func(s *aPull) Ending {
			first := s.grant
			s.offers(s.a.Incarnation, s.from)
			second := s.grant
			s.grant = first
			s.revokes()
			s.grant = second
			return s.ends(s.start())
		}),
		pulling("less is read than was granted", done, func(s *aPull) Ending {
			e := s.transfer()
			for i := range e.Pairs {
				e.Pairs[i].Local.Length /= 2
			}
			return s.ended(e)
		}),
		pulling("a read is cancelled after it ended", done, func(s *aPull) Ending {
			corr := s.start()
			end := s.ends(corr)
			s.do(A, &effects.Cancel{Corr: corr})
			return end
		}),
		pulling("what was read stays when its grant is revoked", may(Revoking, effects.OK), func(s *aPull) Ending {
			s.wants(s.ends(s.start()), effects.OK)
			s.revokes()
			return Ending{Of: Revoking}
		}),
		pulling("pages that were pushed are read back", done, func(s *aPull) Ending {
			push := &aPush{aLink: s.aLink, from: s.fills(A, pullPages, pullPages)}
			push.grant, push.into = s.grants(s.a.Incarnation, pullPages, pullPages, s.b.PageBytes)
			s.wants(push.ends(push.start()), effects.OK)
			s.from = push.into
			s.offers(s.a.Incarnation, s.from)
			return s.ends(s.start())
		}),
		pulling("pages are stored into after the read grant is over", done, func(s *aPull) Ending {
			s.revokes()
			push := &aPush{aLink: s.aLink, from: s.fills(A, pullPages, pullPages)}
			push.grant, push.into = s.grants(s.a.Incarnation, 0, pullPages, s.b.PageBytes)
			return push.ends(push.start())
		}),
		pulling("a link is dropped and imported again, and the grant stands", done, func(s *aPull) Ending {
			s.drops()
			s.link = s.imports(s.b.Incarnation).Link
			return s.ends(s.start())
		}),
	}
}
