package contract

import "github.com/kvferry/kvferry/effects"

// Overlaps returns the scenarios of grants that are in force over the same pages at the same time: each grant is
// independent, with its own length, from Grant to Revoked, whatever happens to the second grant. Only grants to read
// may overlap (M1).
func Overlaps() (list []Scenario[DataStage]) {
	for _, order := range []struct {
		name      string
		longFirst bool
	}{{"the longer first", true}, {"the shorter first", false}} {
		for _, end := range []struct {
			name     string
			longEnds bool
		}{{"the longer ends", true}, {"the shorter ends", false}} {
			name := "pages lent in two lengths, " + order.name + ", and " + end.name
			list = append(list, pulling(name, may(Transferring, effects.OK), func(s *aPull) Ending {
				return newOverlap(s, order.longFirst).ends(end.longEnds, false)
			}), pulling(name+" while both are read", may(Transferring, effects.OK), func(s *aPull) Ending {
				return newOverlap(s, order.longFirst).ends(end.longEnds, true)
			}))
		}
	}
	return append(list, overlapsOfTurns()...)
}

// overlapsOfTurns returns the scenarios of grants over one page that begin and end in turn, so that the page is always
// under a grant.
func overlapsOfTurns() []Scenario[DataStage] {
	done := may(Transferring, effects.OK)
	return []Scenario[DataStage]{
		pulling("pages are lent anew before they come back, again and again", done, func(s *aPull) Ending {
			o := newOverlap(s, true)
			for range 3 {
				s.grant = o.short.grant
				s.revokes()
				o.short = o.lend(s.from)
				s.grant = o.long.grant
				s.revokes()
				o.long = o.lend(o.half)
				s.wants(o.read(o.short), effects.OK)
			}
			return o.read(o.long)
		}),
		// The page belongs to its owner again when the last of three readers is gone.
		pulling("pages lent three times are stored into when the third grant is over", done, func(s *aPull) Ending {
			o := newOverlap(s, false)
			third := o.lend(o.half)
			for _, l := range []loan{o.long, third, o.short} {
				s.wants(o.read(l), effects.OK)
				s.grant = l.grant
				s.revokes()
				s.wants(o.read(l), effects.Withdrawn)
			}
			push := &aPush{aLink: s.aLink, from: s.fills(A, pullPages, pullPages)}
			push.grant, push.into = s.grants(s.a.Incarnation, 0, pullPages, s.b.PageBytes)
			return push.ends(push.start())
		}),
	}
}

// A loan is a grant to read, and the number of bytes of each page that the grant covers.
type loan struct {
	grant effects.GrantID
	bytes uint32
}

// overlap is two grants over the same pages. The long grant covers whole pages, and the short grant half of each page.
type overlap struct {
	*aPull
	half        []effects.Page
	long, short loan
}

func newOverlap(s *aPull, longFirst bool) *overlap {
	first := s.grant
	o := &overlap{aPull: s}
	for _, page := range s.from {
		page.Length /= 2
		o.half = append(o.half, page)
	}
	if longFirst {
		o.long, o.short = loan{first, s.b.PageBytes}, o.lend(o.half)
		return o
	}
	// The first grant covered whole pages and is not part of the scenario.
	o.short = o.lend(o.half)
	s.grant = first
	s.revokes()
	o.long = o.lend(s.from)
	return o
}

func (o *overlap) lend(pages []effects.Page) loan {
	o.offers(o.a.Incarnation, pages)
	return loan{o.grant, pages[0].Length}
}

// startRead starts a read of everything that a grant covers, into some pages of A.
func (o *overlap) asks(l loan, first uint32) effects.Corr {
	o.grant = l.grant
	o.into = o.takes(first)
	e := o.transfer()
	for i := range e.Pairs {
		e.Pairs[i].Local.Length = l.bytes
	}
	o.do(A, e)
	return e.Corr
}

func (o *overlap) read(l loan) Ending {
	end := o.aPull.ends(o.asks(l, 0))
	end.Unsettled = end.Unsettled && end.Code == effects.OK
	return end
}

// endGrant ends a grant, and returns the ending of a read of everything that the remaining grant covers.
func (o *overlap) ends(longEnds, busy bool) (end Ending) {
	over, stays := o.short, o.long
	if longEnds {
		over, stays = o.long, o.short
	}
	if busy {
		stay, gone := o.asks(stays, 0), o.asks(over, pullPages)
		o.do(B, &effects.Revoke{Grant: over.grant})
		_, end = o.both(gone, stay)
		o.wants(end, effects.OK)
		eventually(o.play, B, isRevoked(over.grant))
	} else {
		o.wants(o.read(over), effects.OK)
		o.grant = over.grant
		o.revokes()
	}
	o.wants(o.read(over), effects.Withdrawn)
	end = o.read(stays)
	o.grant = stays.grant
	o.revokes()
	o.wants(o.read(stays), effects.Withdrawn)
	return end
}
