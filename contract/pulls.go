package contract

import "github.com/kvferry/kvferry/effects"

// pullCase is a link, pages of B with content that are granted to A for reading, and pages of A for the content.
type pullCase struct {
	linkCase
	from []effects.Page
	into []effects.Page
}

const pullPages = 3

// newPullCase sets up what most scenarios need.
func newPullCase(p *trial, stage DataStage) *pullCase {
	s := &pullCase{linkCase: linkNodes(p, stage)}
	s.from = s.fillPages(B, 0, pullPages)
	s.grantReads(s.a.Incarnation, s.from)
	s.into = s.publishTargets(0)
	return s
}

// grantReads grants pages of B for reading, in their present generation.
func (s *pullCase) grantReads(to effects.Incarnation, pages []effects.Page) {
	s.nodes[B].grant++
	s.grant = s.nodes[B].grant
	s.issue(B, &effects.Grant{ID: s.grant, Peer: to, Read: true, Pages: pages})
}

// publishTargets publishes pages of A to read into.
func (s *pullCase) publishTargets(first uint32) []effects.Page {
	pages := s.newGenerations(A, first, pullPages, s.a.PageBytes)
	s.issue(A, &effects.Publish{Pages: pages})
	return pages
}

// newTransfer returns the read as an effect, which the scenario may change before the read begins.
func (s *pullCase) newTransfer() *effects.Transfer {
	e := &effects.Transfer{Corr: s.nextCorr(A), Link: s.link, Peer: s.b.Incarnation, Grant: s.grant, Read: true,
		NotAfter: s.stage.Now(A).Add(60 * effects.Second)}
	for i, page := range s.into {
		e.Pairs = append(e.Pairs, effects.Pair{Local: page,
			Remote: effects.RemotePage{Buffer: s.b.Buffer, Index: s.from[i].Index, Generation: s.from[i].Generation}})
	}
	return e
}

func (s *pullCase) startTransfer() effects.Corr {
	e := s.newTransfer()
	s.issue(A, e)
	return e.Corr
}

// awaitBoth waits for the ends of two transfers, in either order, and for the Settled events that follow.
func (s *pullCase) awaitBoth(one, two effects.Corr) (x, y Ending) {
	ends, left := map[effects.Corr]Ending{}, 2
	for left > 0 && s.err == nil {
		_, ev, ok := s.nextEvent()
		if !ok {
			s.fail("%d ends of two transfers never came", left)
		}
		switch e := ev.(type) {
		case *effects.TransferDone:
			ends[e.Corr], _ = EndingOf(e)
			if e.Settled {
				left--
			}
		case *effects.Settled:
			left--
		default: // Other events do not matter here.
		}
	}
	return ends[one], ends[two]
}

func pullScenario(name string, ends []Ending, run func(s *pullCase) Ending) Scenario[DataStage] {
	return Scenario[DataStage]{Name: name, Endings: ends,
		run: func(p *trial, stage DataStage) Ending { return run(newPullCase(p, stage)) }}
}

// Pulls returns the scenarios of reads on fenced data planes. In most scenarios the owner of the pages is passive: a
// plane may carry reads out without the owner's process.
func Pulls() []Scenario[DataStage] {
	return append(append(undisturbedPulls(), refusedPulls()...), interruptedPulls()...)
}

func undisturbedPulls() []Scenario[DataStage] {
	done := endings(Transferring, effects.OK)
	return []Scenario[DataStage]{
		pullScenario("a read arrives", done, func(s *pullCase) Ending { return s.awaitEnd(s.startTransfer()) }),
		pullScenario("pages are read again under the same grant", done, func(s *pullCase) Ending {
			s.expectCode(s.awaitEnd(s.startTransfer()), effects.OK)
			s.into = s.publishTargets(0)
			return s.awaitEnd(s.startTransfer())
		}),
		pullScenario("two reads of the same pages at once", done, func(s *pullCase) Ending {
			one := s.startTransfer()
			s.into = s.publishTargets(pullPages)
			x, y := s.awaitBoth(one, s.startTransfer())
			s.expectCode(x, effects.OK)
			return y
		}),
		pullScenario("pages under two grants are read when one is over", done, func(s *pullCase) Ending {
			first := s.grant
			s.grantReads(s.a.Incarnation, s.from)
			second := s.grant
			s.grant = first
			s.revokeGrant()
			s.grant = second
			return s.awaitEnd(s.startTransfer())
		}),
		pullScenario("less is read than was granted", done, func(s *pullCase) Ending {
			e := s.newTransfer()
			for i := range e.Pairs {
				e.Pairs[i].Local.Length /= 2
			}
			return s.runTransfer(e)
		}),
		pullScenario("a read is cancelled after it ended", done, func(s *pullCase) Ending {
			corr := s.startTransfer()
			end := s.awaitEnd(corr)
			s.issue(A, &effects.Cancel{Corr: corr})
			return end
		}),
		pullScenario("what was read stays when its grant is revoked", endings(Revoking, effects.OK), func(s *pullCase) Ending {
			s.expectCode(s.awaitEnd(s.startTransfer()), effects.OK)
			s.revokeGrant()
			return Ending{Verb: Revoking}
		}),
		pullScenario("pages that were pushed are read back", done, func(s *pullCase) Ending {
			push := &pushCase{linkCase: s.linkCase, from: s.fillPages(A, pullPages, pullPages)}
			push.grant, push.into = s.grantPages(s.a.Incarnation, pullPages, pullPages, s.b.PageBytes)
			s.expectCode(push.awaitEnd(push.startTransfer()), effects.OK)
			s.from = push.into
			s.grantReads(s.a.Incarnation, s.from)
			return s.awaitEnd(s.startTransfer())
		}),
		pullScenario("pages are stored into after the read grant is over", done, func(s *pullCase) Ending {
			s.revokeGrant()
			push := &pushCase{linkCase: s.linkCase, from: s.fillPages(A, pullPages, pullPages)}
			push.grant, push.into = s.grantPages(s.a.Incarnation, 0, pullPages, s.b.PageBytes)
			return push.awaitEnd(push.startTransfer())
		}),
		pullScenario("a link is dropped and imported again, and the grant stands", done, func(s *pullCase) Ending {
			s.dropLink()
			s.link = s.importPeer(s.b.Incarnation).Link
			return s.awaitEnd(s.startTransfer())
		}),
	}
}
