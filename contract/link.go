package contract

import "github.com/kvferry/kvferry/effects"

// linkCase is a link from A to B and a grant of B, for scenarios that move pages.
type linkCase struct {
	*trial
	stage DataStage
	a, b  Node
	link  effects.Link
	grant effects.GrantID
}

// unlinkedNodes returns two nodes that are not connected.
func unlinkedNodes(p *trial, stage DataStage) linkCase {
	return linkCase{trial: p, stage: stage, a: stage.Node(A), b: stage.Node(B)}
}

// linkNodes returns two nodes after A has imported B.
func linkNodes(p *trial, stage DataStage) linkCase {
	s := unlinkedNodes(p, stage)
	s.link = s.importPeer(s.b.Incarnation).Link
	return s
}

// importPeer has A import B under an incarnation.
func (s *linkCase) importPeer(incarnation effects.Incarnation) effects.Imported {
	corr := s.nextCorr(A)
	s.issue(A, &effects.Import{Corr: corr, Peer: incarnation, Us: s.a.Incarnation, Plane: s.b.Plane, Blob: s.b.Blob})
	if ev := awaitNew(s.trial, A, func(e *effects.Imported) bool { return e.Corr == corr }); ev != nil {
		return *ev
	}
	return effects.Imported{}
}

// newGenerations returns new generations of pages of a node.
func (s *linkCase) newGenerations(at End, first, n, length uint32) (pages []effects.Page) {
	for i := range n {
		s.nodes[at].generation++
		pages = append(pages, effects.Page{Index: first + i, Length: length, Generation: s.nodes[at].generation})
	}
	return pages
}

// fillPages publishes pages of a node and stores content in the pages, as the node's engine would.
func (s *linkCase) fillPages(at End, first, n uint32) []effects.Page {
	pages := s.newGenerations(at, first, n, s.stage.Node(at).PageBytes)
	s.issue(at, &effects.Publish{Pages: pages})
	if s.err == nil {
		s.stage.Fill(at, pages)
	}
	return pages
}

// grantPages grants pages of B for storing.
func (s *linkCase) grantPages(to effects.Incarnation, first, n, length uint32) (effects.GrantID, []effects.Page) {
	return s.grantSums(to, first, n, length, 0)
}

// grantSums grants pages of B for storing content with a checksum.
func (s *linkCase) grantSums(to effects.Incarnation, first, n, length uint32, sum effects.Sum) (effects.GrantID, []effects.Page) {
	s.nodes[B].grant++
	pages := s.newGenerations(B, first, n, length)
	for i := range pages {
		pages[i].Sum = sum
	}
	s.issue(B, &effects.Grant{ID: s.nodes[B].grant, Peer: to, Pages: pages})
	return s.nodes[B].grant, pages
}

// awaitEnd waits for the end of a transfer, and for its Settled if that is owed.
func (s *linkCase) awaitEnd(corr effects.Corr) Ending {
	ev := awaitNew(s.trial, A, func(e *effects.TransferDone) bool { return e.Corr == corr })
	if ev == nil {
		return Ending{}
	}
	end, _ := EndingOf(ev)
	if !ev.Settled {
		awaitNew(s.trial, A, func(e *effects.Settled) bool { return e.Corr == corr })
	}
	return end
}

// runTransfer issues a transfer that the scenario has changed, and waits for its end.
func (s *linkCase) runTransfer(e *effects.Transfer) Ending {
	s.issue(A, e)
	return s.awaitEnd(e.Corr)
}

func (s *linkCase) revokeGrant() {
	grant := s.grant
	s.issue(B, &effects.Revoke{Grant: grant})
	awaitNew(s.trial, B, func(e *effects.Revoked) bool { return e.Grant == grant })
}

func (s *linkCase) dropLink() Ending {
	s.issue(A, &effects.Drop{Link: s.link})
	if awaitNew(s.trial, A, func(e *effects.Dropped) bool { return e.Link == s.link }) == nil {
		return Ending{}
	}
	return Ending{Verb: Dropping}
}

// expectCode fails the scenario unless an intermediate step ended with the code.
func (s *linkCase) expectCode(got Ending, code effects.Code) {
	if want := (Ending{Verb: Transferring, Code: code}); s.err == nil && got != want {
		s.fail("a step before ended as %v instead of %v", got, want)
	}
}
