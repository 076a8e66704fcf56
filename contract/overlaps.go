package contract

import "github.com/kvferry/kvferry/effects"

// OverlappingGrants returns the scenarios of grants that are in force over the same pages at the same time: each grant
// is independent, with its own length, from Grant to Revoked, whatever happens to the second grant. Only grants to read
// may overlap (M1).
func OverlappingGrants() (list []Scenario[DataStage]) {
	for _, order := range []struct {
		name      string
		longFirst bool
	}{{"the longer first", true}, {"the shorter first", false}} {
		for _, end := range []struct {
			name     string
			longEnds bool
		}{{"the longer ends", true}, {"the shorter ends", false}} {
			name := "pages lent in two lengths, " + order.name + ", and " + end.name
			list = append(list, pullScenario(name, endings(Transferring, effects.OK), func(s *pullCase) Ending {
				return newOverlapCase(s, order.longFirst).endGrant(end.longEnds, false)
			}), pullScenario(name+" while both are read", endings(Transferring, effects.OK), func(s *pullCase) Ending {
				return newOverlapCase(s, order.longFirst).endGrant(end.longEnds, true)
			}))
		}
	}
	return append(list, alternatingGrants()...)
}

// alternatingGrants returns the scenarios of grants over one page that begin and end in turn, so that the page is
// always under a grant.
func alternatingGrants() []Scenario[DataStage] {
	done := endings(Transferring, effects.OK)
	return []Scenario[DataStage]{
		pullScenario("pages are lent anew before they come back, again and again", done, func(s *pullCase) Ending {
			o := newOverlapCase(s, true)
			for range 3 {
				s.grant = o.short.grant
				s.revokeGrant()
				o.short = o.grantRead(s.from)
				s.grant = o.long.grant
				s.revokeGrant()
				o.long = o.grantRead(o.half)
				s.expectCode(o.awaitRead(o.short), effects.OK)
			}
			return o.awaitRead(o.long)
		}),
		// The page belongs to its owner again when the last of three readers is gone.
		pullScenario("pages lent three times are stored into when the third grant is over", done, func(s *pullCase) Ending {
			o := newOverlapCase(s, false)
			third := o.grantRead(o.half)
			for _, l := range []readGrant{o.long, third, o.short} {
				s.expectCode(o.awaitRead(l), effects.OK)
				s.grant = l.grant
				s.revokeGrant()
				s.expectCode(o.awaitRead(l), effects.Withdrawn)
			}
			push := &pushCase{linkCase: s.linkCase, from: s.fillPages(A, pullPages, pullPages)}
			push.grant, push.into = s.grantPages(s.a.Incarnation, 0, pullPages, s.b.PageBytes)
			return push.awaitEnd(push.startTransfer())
		}),
	}
}

// A readGrant is a grant to read, and the number of bytes of each page that the grant covers.
type readGrant struct {
	grant effects.GrantID
	bytes uint32
}

// overlapCase is two grants over the same pages. The long grant covers whole pages, and the short grant half of each
// page.
type overlapCase struct {
	*pullCase
	half        []effects.Page
	long, short readGrant
}

func newOverlapCase(s *pullCase, longFirst bool) *overlapCase {
	first := s.grant
	o := &overlapCase{pullCase: s}
	for _, page := range s.from {
		page.Length /= 2
		o.half = append(o.half, page)
	}
	if longFirst {
		o.long, o.short = readGrant{first, s.b.PageBytes}, o.grantRead(o.half)
		return o
	}
	// The first grant covered whole pages and is not part of the scenario.
	o.short = o.grantRead(o.half)
	s.grant = first
	s.revokeGrant()
	o.long = o.grantRead(s.from)
	return o
}

func (o *overlapCase) grantRead(pages []effects.Page) readGrant {
	o.grantReads(o.a.Incarnation, pages)
	return readGrant{o.grant, pages[0].Length}
}

// startRead starts a read of everything that a grant covers, into some pages of A.
func (o *overlapCase) startRead(l readGrant, first uint32) effects.Corr {
	o.grant = l.grant
	o.into = o.publishTargets(first)
	e := o.newTransfer()
	for i := range e.Pairs {
		e.Pairs[i].Local.Length = l.bytes
	}
	o.issue(A, e)
	return e.Corr
}

func (o *overlapCase) awaitRead(l readGrant) Ending {
	end := o.awaitEnd(o.startRead(l, 0))
	end.Unsettled = end.Unsettled && end.Code == effects.OK
	return end
}

// endGrant ends a grant, and returns the ending of a read of everything that the remaining grant covers.
func (o *overlapCase) endGrant(longEnds, busy bool) (end Ending) {
	ended, remaining := o.short, o.long
	if longEnds {
		ended, remaining = o.long, o.short
	}
	if busy {
		first, second := o.startRead(remaining, 0), o.startRead(ended, pullPages)
		o.issue(B, &effects.Revoke{Grant: ended.grant})
		_, end = o.awaitBoth(second, first)
		o.expectCode(end, effects.OK)
		awaitEvent(o.trial, B, isRevoked(ended.grant))
	} else {
		o.expectCode(o.awaitRead(ended), effects.OK)
		o.grant = ended.grant
		o.revokeGrant()
	}
	o.expectCode(o.awaitRead(ended), effects.Withdrawn)
	end = o.awaitRead(remaining)
	o.grant = remaining.grant
	o.revokeGrant()
	o.expectCode(o.awaitRead(remaining), effects.Withdrawn)
	return end
}
