package contract

import "github.com/kvferry/kvferry/effects"

// aPush is a link, pages of A with content, and pages of B that are granted to A.
type aPush struct {
	aLink
	from []effects.Page
	into []effects.Page
}

const pushPages = 3

// newPush sets up what most scenarios need.
func newPush(p *play, stage DataStage) *aPush {
	s := &aPush{aLink: linked(p, stage)}
	s.from = s.fills(A, 0, pushPages)
	s.grant, s.into = s.grants(s.a.Incarnation, 0, pushPages, s.b.PageBytes)
	return s
}

// transfer returns the push as an effect, which the scenario may change before the push begins.
func (s *aPush) transfer() *effects.Transfer {
	e := &effects.Transfer{Corr: s.corr(A), Link: s.link, Peer: s.b.Incarnation, Grant: s.grant,
		NotAfter: s.stage.Now(A).Add(60 * effects.Second)}
	for i, page := range s.from {
		e.Pairs = append(e.Pairs, effects.Pair{Local: page,
			Remote: effects.RemotePage{Buffer: s.b.Buffer, Index: s.into[i].Index, Generation: s.into[i].Generation}})
	}
	return e
}

func (s *aPush) start() effects.Corr {
	e := s.transfer()
	s.do(A, e)
	return e.Corr
}

func pushing(name string, ends []Ending, run func(s *aPush) Ending) Scenario[DataStage] {
	return Scenario[DataStage]{Name: name, May: ends,
		run: func(p *play, stage DataStage) Ending { return run(newPush(p, stage)) }}
}

// Pushes returns the scenarios of pushes on fenced data planes.
func Pushes() []Scenario[DataStage] {
	return append(append(pushesInPeace(), pushesRefused()...), pushesCutShort()...)
}

func pushesInPeace() []Scenario[DataStage] {
	done := may(Transferring, effects.OK)
	return []Scenario[DataStage]{
		pushing("a push arrives", done, func(s *aPush) Ending { return s.ends(s.start()) }),
		pushing("a push is cancelled after it ended", done, func(s *aPush) Ending {
			corr := s.start()
			end := s.ends(corr)
			s.do(A, &effects.Cancel{Corr: corr})
			return end
		}),
		pushing("what landed is not taken back by revoking its grant", done, func(s *aPush) Ending {
			end := s.ends(s.start())
			s.revokes()
			return end
		}),
		pushing("a page is granted anew after Revoked", done, func(s *aPush) Ending {
			s.revokes()
			s.grant, s.into = s.grants(s.a.Incarnation, 0, pushPages, s.b.PageBytes)
			return s.ends(s.start())
		}),
		pushing("the target's machine does not take what landed", failing(effects.Withdrawn), func(s *aPush) Ending {
			s.confirm = func(*effects.Landed) effects.Code { return effects.Withdrawn }
			return s.ends(s.start())
		}),
		pushing("a link is dropped and imported again", done, func(s *aPush) Ending {
			s.drops()
			s.link = s.imports(s.b.Incarnation).Link
			return s.ends(s.start())
		}),
	}
}
