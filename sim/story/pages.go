package story

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// pageTrack is the timeline of one page, and what its open span is about.
type pageTrack struct {
	page trace.Page
	now  pageSeen
}

// pageSeen is what tells one span of a page from the next.
type pageSeen struct {
	state  string
	grant  effects.GrantID
	ticket effects.Ticket
	key    uint32
	known  bool // key is
	life   uint32
}

// lookAt brings the timelines of a node's pages up to date.
func (r *Recorder) lookAt(n *world.Node) {
	for i := range n.PagesShown() {
		at := pageOf{n.ID, uint32(i)}
		track := r.pages[at]
		if track == nil {
			track = &pageTrack{page: trace.Page{Node: int(n.ID), Index: i, Ref: r.pageRef(n.ID, uint32(i))},
				now: pageSeen{state: "free"}}
			r.pages[at] = track
		}
		seen := r.see(n, i)
		if seen == track.now {
			continue
		}
		if last := len(track.page.Spans) - 1; track.now.state != "free" && last >= 0 {
			track.page.Spans[last].To = r.w.Now
		}
		track.now = seen
		if seen.state != "free" {
			track.page.Spans = append(track.page.Spans, trace.Span{From: r.w.Now, To: trace.Never, State: seen.state,
				Refs: r.seenRefs(n, seen)})
		}
	}
}

// see says what a page is: by what drivers know, and by what its machine believes where only that
// tells. A page in several states shows the most guarded, in the order of [trace.PageStates].
func (r *Recorder) see(n *world.Node, i int) pageSeen {
	s := pageSeen{state: "free", life: n.Life}
	if !n.Up {
		return s
	}
	pg, m := r.shown(n, i)
	switch {
	case m.Quarantined:
		s.state, s.grant = "quarantined", m.Grant
	case pg.Pins > 0:
		s.state = "pinned"
	case pg.Writers > 0 || r.storing[pageOf{n.ID, uint32(i)}]:
		s.state, s.grant = "landing", pg.Granted
	case m.Grant != 0:
		s.state, s.grant = "granted", m.Grant
	case pg.Readers > 0 || r.lent(n, uint32(i)):
		s.state, s.ticket = "lent", pg.Reserved
	case pg.Reserved != 0:
		s.state, s.ticket = "reserved", pg.Reserved
	case m.Refs > 0 && n.Receives():
		s.state = "ready"
	default:
		return s
	}
	if first := pg.Stamps[0]; first != 0 && s.state != "granted" && s.state != "quarantined" {
		s.key, s.known = first.Key(), true
	}
	return s
}

// shown is a page by the number that people read, as it is, and as its machine believes.
func (r *names) shown(n *world.Node, number int) (*world.Page, Belief) {
	return &n.Pool.Pages[number], r.of.Believed(n, uint32(number))
}

// lent says whether a grant lets the page be read.
func (r *Recorder) lent(n *world.Node, index uint32) bool {
	return slices.ContainsFunc(n.Pool.Lent, func(g *world.Grant) bool { return r.w.Standing(n, g) && g.Place(index) >= 0 })
}

func (r *names) seenRefs(n *world.Node, s pageSeen) []int {
	var refs []int
	if s.grant != 0 {
		refs = append(refs, r.grantRef(n.ID, n.Life, s.grant))
	}
	if s.ticket != 0 {
		refs = append(refs, r.ticketRef(s.ticket))
		if name := r.of.RequestOf(s.ticket); name != nil {
			refs = append(refs, r.requestRef(name))
		}
	}
	if s.known {
		refs = append(refs, r.keyRef(s.key))
	}
	return refs
}
