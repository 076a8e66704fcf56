package story

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// pageTimeline is the timeline of a page with the state of the open span.
type pageTimeline struct {
	page trace.Page
	view pageView
}

// pageView holds the values that distinguish a span of a page from the next span.
type pageView struct {
	state  string
	grant  effects.GrantID
	ticket effects.Ticket
	key    uint32
	hasKey bool // key is valid
	life   uint32
}

// updatePages updates the timelines of the pages of a node.
func (r *Recorder) updatePages(n *world.Node) {
	for i := range n.PageCount() {
		at := pageKey{n.ID, uint32(i)}
		track := r.pages[at]
		if track == nil {
			track = &pageTimeline{page: trace.Page{Node: int(n.ID), Index: i, Ref: r.pageRef(n.ID, uint32(i))},
				view: pageView{state: "free"}}
			r.pages[at] = track
		}
		view := r.viewPage(n, i)
		if view == track.view {
			continue
		}
		if last := len(track.page.Spans) - 1; track.view.state != "free" && last >= 0 {
			track.page.Spans[last].To = r.w.Now
		}
		track.view = view
		if view.state != "free" {
			track.page.Spans = append(track.page.Spans, trace.Span{From: r.w.Now, To: trace.Never, State: view.state,
				Refs: r.viewRefs(n, view)})
		}
	}
}

// viewPage returns the state of a page. The state follows from the drivers, or from the machine where only the machine
// knows. For a page in several states, viewPage returns the most protected state in the order of [trace.PageStates].
func (r *Recorder) viewPage(n *world.Node, i int) pageView {
	s := pageView{state: "free", life: n.Incarnation}
	if !n.Up {
		return s
	}
	pg, m := r.pageAndBelief(n, i)
	switch {
	case m.Quarantined:
		s.state, s.grant = "quarantined", m.Grant
	case pg.Pins > 0:
		s.state = "pinned"
	case pg.Writers > 0 || r.halfStored[pageKey{n.ID, uint32(i)}]:
		s.state, s.grant = "landing", pg.Granted
	case m.Grant != 0:
		s.state, s.grant = "granted", m.Grant
	case pg.Readers > 0 || r.isLeased(n, uint32(i)):
		s.state, s.ticket = "lent", pg.Reserved
	case pg.Reserved != 0:
		s.state, s.ticket = "reserved", pg.Reserved
	case m.Refs > 0 && n.IsReceiver():
		s.state = "ready"
	default:
		return s
	}
	if first := pg.Stamps[0]; first != 0 && s.state != "granted" && s.state != "quarantined" {
		s.key, s.hasKey = first.Key(), true
	}
	return s
}

// pageAndBelief returns the page with a displayed number, and the belief of the machine about the page.
func (r *refTable) pageAndBelief(n *world.Node, number int) (*world.Page, Belief) {
	return &n.Pool.Pages[number], r.describer.BeliefAbout(n, uint32(number))
}

// isLeased reports whether a grant allows the page to be read.
func (r *Recorder) isLeased(n *world.Node, index uint32) bool {
	return slices.ContainsFunc(n.Pool.ReadLeases, func(g *world.Grant) bool { return r.w.IsLeaseLive(n, g) && g.PageIndex(index) >= 0 })
}

func (r *refTable) viewRefs(n *world.Node, s pageView) []int {
	var refs []int
	if s.grant != 0 {
		refs = append(refs, r.grantRef(n.ID, n.Incarnation, s.grant))
	}
	if s.ticket != 0 {
		refs = append(refs, r.ticketRef(s.ticket))
		if name := r.describer.RequestOfCommand(s.ticket); name != nil {
			refs = append(refs, r.requestRef(name))
		}
	}
	if s.hasKey {
		refs = append(refs, r.keyRef(s.key))
	}
	return refs
}
