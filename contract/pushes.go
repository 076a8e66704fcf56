package contract

import "github.com/kvferry/kvferry/effects"

// pushCase is a link, pages of A with content, and pages of B that are granted to A.
type pushCase struct {
	linkCase
	from []effects.Page
	into []effects.Page
}

const pushPages = 3

// wrongSum is a checksum that no content of a stage has. A stage compares checksums.
const wrongSum effects.Sum = 2

// newPushCase sets up what most scenarios need.
func newPushCase(p *trial, stage DataStage) *pushCase {
	s := &pushCase{linkCase: linkNodes(p, stage)}
	s.from = s.fillPages(A, 0, pushPages)
	s.grant, s.into = s.grantPages(s.a.Incarnation, 0, pushPages, s.b.PageBytes)
	return s
}

// newTransfer returns the push as an effect, which the scenario may change before the push begins.
func (s *pushCase) newTransfer() *effects.Transfer {
	e := &effects.Transfer{Corr: s.nextCorr(A), Link: s.link, Peer: s.b.Incarnation, Grant: s.grant,
		NotAfter: s.stage.Now(A).Add(60 * effects.Second)}
	for i, page := range s.from {
		e.Pairs = append(e.Pairs, effects.Pair{Local: page,
			Remote: effects.RemotePage{Buffer: s.b.Buffer, Index: s.into[i].Index, Generation: s.into[i].Generation}})
	}
	return e
}

func (s *pushCase) startTransfer() effects.Corr {
	e := s.newTransfer()
	s.issue(A, e)
	return e.Corr
}

func pushScenario(name string, ends []Ending, run func(s *pushCase) Ending) Scenario[DataStage] {
	return Scenario[DataStage]{Name: name, Endings: ends,
		run: func(p *trial, stage DataStage) Ending { return run(newPushCase(p, stage)) }}
}

// Pushes returns the scenarios of pushes on fenced data planes.
func Pushes() []Scenario[DataStage] {
	return append(append(undisturbedPushes(), refusedPushes()...), interruptedPushes()...)
}

func undisturbedPushes() []Scenario[DataStage] {
	done := endings(Transferring, effects.OK)
	return []Scenario[DataStage]{
		pushScenario("a push arrives", done, func(s *pushCase) Ending { return s.awaitEnd(s.startTransfer()) }),
		pushScenario("a push is cancelled after it ended", done, func(s *pushCase) Ending {
			corr := s.startTransfer()
			end := s.awaitEnd(corr)
			s.issue(A, &effects.Cancel{Corr: corr})
			return end
		}),
		pushScenario("what landed is not taken back by revoking its grant", done, func(s *pushCase) Ending {
			end := s.awaitEnd(s.startTransfer())
			s.revokeGrant()
			return end
		}),
		pushScenario("a page is granted anew after Revoked", done, func(s *pushCase) Ending {
			s.revokeGrant()
			s.grant, s.into = s.grantPages(s.a.Incarnation, 0, pushPages, s.b.PageBytes)
			return s.awaitEnd(s.startTransfer())
		}),
		pushScenario("the target's machine does not take what landed", failures(effects.Withdrawn), func(s *pushCase) Ending {
			s.confirm = func(*effects.Landed) effects.Code { return effects.Withdrawn }
			return s.awaitEnd(s.startTransfer())
		}),
		pushScenario("a link is dropped and imported again", done, func(s *pushCase) Ending {
			s.dropLink()
			s.link = s.importPeer(s.b.Incarnation).Link
			return s.awaitEnd(s.startTransfer())
		}),
	}
}
