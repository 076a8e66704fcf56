package contract

import "github.com/kvferry/kvferry/effects"

// aPush is a link from A to B, pages of A with content, and pages of B granted to A.
type aPush struct {
	*play
	stage DataStage
	a, b  Node
	link  effects.Link
	grant effects.GrantID
	from  []effects.Page
	into  []effects.Page
}

const pushPages = 3

// newPush sets the scene of most scenarios.
func newPush(p *play, stage DataStage) *aPush {
	s := &aPush{play: p, stage: stage, a: stage.Node(A), b: stage.Node(B)}
	s.link = s.imports(s.b.Incarnation).Link
	s.from = s.lend(0, pushPages)
	s.grant, s.into = s.grants(s.a.Incarnation, 0, pushPages, s.b.PageBytes)
	return s
}

// imports imports B under an incarnation.
func (s *aPush) imports(who effects.Incarnation) effects.Imported {
	corr := s.corr(A)
	s.do(A, &effects.Import{Corr: corr, Peer: who, Plane: s.b.Plane, Blob: s.b.Blob})
	if ev := until(s.play, A, func(e *effects.Imported) bool { return e.Corr == corr }); ev != nil {
		return *ev
	}
	return effects.Imported{}
}

// life makes new lives of pages of a node.
func (s *aPush) life(at End, first, n, length uint32) (pages []effects.Page) {
	for i := range n {
		s.sides[at].generation++
		pages = append(pages, effects.Page{Index: first + i, Length: length, Generation: s.sides[at].generation})
	}
	return pages
}

// lend gives pages of A to its engine, which fills them.
func (s *aPush) lend(first, n uint32) []effects.Page {
	pages := s.life(A, first, n, s.a.PageBytes)
	s.do(A, &effects.Publish{Pages: pages})
	if s.err == nil {
		s.stage.Fill(A, pages)
	}
	return pages
}

// grants grants pages of B.
func (s *aPush) grants(to effects.Incarnation, first, n, length uint32) (effects.GrantID, []effects.Page) {
	s.sides[B].grant++
	pages := s.life(B, first, n, length)
	s.do(B, &effects.Grant{ID: s.sides[B].grant, Peer: to, Pages: pages})
	return s.sides[B].grant, pages
}

// transfer is the push as an effect, to be changed before it is done.
func (s *aPush) transfer() *effects.Transfer {
	e := &effects.Transfer{Corr: s.corr(A), Link: s.link, Peer: s.b.Incarnation, Grant: s.grant, NotAfter: s.stage.Now(A).Add(60 * effects.Second)}
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

// ends waits for the end of a transfer, and for its Settled if that is owed.
func (s *aPush) ends(corr effects.Corr) Ending {
	ev := until(s.play, A, func(e *effects.TransferDone) bool { return e.Corr == corr })
	if ev == nil {
		return Ending{}
	}
	end, _ := EndingOf(ev)
	if !ev.Settled {
		until(s.play, A, func(e *effects.Settled) bool { return e.Corr == corr })
	}
	return end
}

// ended does a transfer that was changed and waits for its end.
func (s *aPush) ended(e *effects.Transfer) Ending {
	s.do(A, e)
	return s.ends(e.Corr)
}

func (s *aPush) revokes() {
	grant := s.grant
	s.do(B, &effects.Revoke{Grant: grant})
	until(s.play, B, func(e *effects.Revoked) bool { return e.Grant == grant })
}

func (s *aPush) drops() Ending {
	s.do(A, &effects.Drop{Link: s.link})
	if until(s.play, A, func(e *effects.Dropped) bool { return e.Link == s.link }) == nil {
		return Ending{}
	}
	return Ending{Of: Dropping}
}

// wants fails the scenario unless a step before the one in question ended so.
func (s *aPush) wants(got Ending, code effects.Code) {
	if want := (Ending{Of: Transferring, Code: code}); s.err == nil && got != want {
		s.fail("a step before ended as %v instead of %v", got, want)
	}
}

func pushing(name string, ends []Ending, run func(s *aPush) Ending) Scenario[DataStage] {
	return Scenario[DataStage]{Name: name, May: ends, run: func(p *play, stage DataStage) Ending { return run(newPush(p, stage)) }}
}

// Pushes are the scenarios of fenced data planes.
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
