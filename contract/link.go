package contract

import "github.com/kvferry/kvferry/effects"

// aLink is a link from A to B and a grant of B, for scenarios that move pages.
type aLink struct {
	*play
	stage DataStage
	a, b  Node
	link  effects.Link
	grant effects.GrantID
}

// strangers returns two nodes that are not connected.
func strangers(p *play, stage DataStage) aLink {
	return aLink{play: p, stage: stage, a: stage.Node(A), b: stage.Node(B)}
}

// linked returns two nodes after A has imported B.
func linked(p *play, stage DataStage) aLink {
	s := strangers(p, stage)
	s.link = s.imports(s.b.Incarnation).Link
	return s
}

// imports has A import B under an incarnation.
func (s *aLink) imports(who effects.Incarnation) effects.Imported {
	corr := s.corr(A)
	s.do(A, &effects.Import{Corr: corr, Peer: who, Us: s.a.Incarnation, Plane: s.b.Plane, Blob: s.b.Blob})
	if ev := until(s.play, A, func(e *effects.Imported) bool { return e.Corr == corr }); ev != nil {
		return *ev
	}
	return effects.Imported{}
}

// newGenerations returns new generations of pages of a node.
func (s *aLink) life(at End, first, n, length uint32) (pages []effects.Page) {
	for i := range n {
		s.sides[at].generation++
		pages = append(pages, effects.Page{Index: first + i, Length: length, Generation: s.sides[at].generation})
	}
	return pages
}

// fills publishes pages of a node and stores content in the pages, as the node's engine would.
func (s *aLink) fills(at End, first, n uint32) []effects.Page {
	pages := s.life(at, first, n, s.stage.Node(at).PageBytes)
	s.do(at, &effects.Publish{Pages: pages})
	if s.err == nil {
		s.stage.Fill(at, pages)
	}
	return pages
}

// grants grants pages of B for storing.
func (s *aLink) grants(to effects.Incarnation, first, n, length uint32) (effects.GrantID, []effects.Page) {
	s.sides[B].grant++
	pages := s.life(B, first, n, length)
	s.do(B, &effects.Grant{ID: s.sides[B].grant, Peer: to, Pages: pages})
	return s.sides[B].grant, pages
}

// awaitEnd waits for the end of a transfer, and for its Settled if that is owed.
func (s *aLink) ends(corr effects.Corr) Ending {
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

// runTransfer issues a transfer that the scenario has changed, and waits for its end.
func (s *aLink) ended(e *effects.Transfer) Ending {
	s.do(A, e)
	return s.ends(e.Corr)
}

func (s *aLink) revokes() {
	grant := s.grant
	s.do(B, &effects.Revoke{Grant: grant})
	until(s.play, B, func(e *effects.Revoked) bool { return e.Grant == grant })
}

func (s *aLink) drops() Ending {
	s.do(A, &effects.Drop{Link: s.link})
	if until(s.play, A, func(e *effects.Dropped) bool { return e.Link == s.link }) == nil {
		return Ending{}
	}
	return Ending{Of: Dropping}
}

// wants fails the scenario unless an intermediate step ended with the code.
func (s *aLink) wants(got Ending, code effects.Code) {
	if want := (Ending{Of: Transferring, Code: code}); s.err == nil && got != want {
		s.fail("a step before ended as %v instead of %v", got, want)
	}
}
