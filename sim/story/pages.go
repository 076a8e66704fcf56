package story

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// pageTimeline is the timeline of a page with the state of the open span.
type pageTrack struct {
	page trace.Page
	now  pageSeen
}

// pageView holds the values that distinguish a span of a page from the next span.
type pageSeen struct {
	state  string
	grant  effects.GrantID
	ticket effects.Ticket
	key    uint32
	known  bool // key is valid
	life   uint32
}

// lookAt updates the timelines of the pages of a node.
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

// see returns the state of a page. The state follows from the drivers, or from the machine where only the machine
// knows. For a page in several states, see returns the most protected state in the order of [trace.PageStates].
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

// shown returns the page with a displayed number, and the belief of the machine about the page.
func (r *names) shown(n *world.Node, number int) (*world.Page, Belief) {
	return &n.Pool.Pages[number], r.of.Believed(n, uint32(number))
}

// lent reports whether a grant allows the page to be read.
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
