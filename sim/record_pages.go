package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/memory"
	"github.com/kvferry/kvferry/sim/trace"
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
func (r *recorder) lookAt(n *node) {
	for i := range n.pagesShown() {
		at := pageOf{n.id, uint32(i)}
		track := r.pages[at]
		if track == nil {
			track = &pageTrack{page: trace.Page{Node: int(n.id), Index: i, Ref: r.pageRef(n.id, uint32(i))}, now: pageSeen{state: "free"}}
			r.pages[at] = track
		}
		seen := r.see(n, i)
		if seen == track.now {
			continue
		}
		if last := len(track.page.Spans) - 1; track.now.state != "free" && last >= 0 {
			track.page.Spans[last].To = r.w.now
		}
		track.now = seen
		if seen.state != "free" {
			track.page.Spans = append(track.page.Spans, trace.Span{From: r.w.now, To: trace.Never, State: seen.state, Refs: r.seenRefs(n, seen)})
		}
	}
}

// see says what a page is: by what drivers know, and by what its machine believes where only that
// tells. A page in several states shows the most guarded, in the order of [trace.PageStates].
func (r *recorder) see(n *node, i int) pageSeen {
	s := pageSeen{state: "free", life: n.life}
	if !n.up {
		return s
	}
	pg, m := n.page(i)
	switch {
	case m.Quarantined:
		s.state, s.grant = "quarantined", m.Grant
	case pg.pins > 0:
		s.state = "pinned"
	case pg.writers > 0 || r.storing[pageOf{n.id, uint32(i)}]:
		s.state, s.grant = "landing", pg.granted
	case m.Grant != 0:
		s.state, s.grant = "granted", m.Grant
	case pg.readers > 0 || r.lent(n, uint32(i)):
		s.state, s.ticket = "lent", pg.reserved
	case pg.reserved != 0:
		s.state, s.ticket = "reserved", pg.reserved
	case m.Refs > 0 && n.receives():
		s.state = "ready"
	default:
		return s
	}
	if first := pg.stamps[0]; first != 0 && s.state != "granted" && s.state != "quarantined" {
		s.key, s.known = first.key(), true
	}
	return s
}

// pagesShown is how many pages a node has, and page is the one with a number, as its driver and its machine know it.
func (n *node) pagesShown() int {
	if n.device != nil {
		return len(n.pool.pages) + len(n.device.pages)
	}
	return len(n.pool.pages)
}

func (n *node) page(number int) (*page, memory.State) {
	if i := number - len(n.pool.pages); i >= 0 {
		return &n.device.pages[i], n.pageState(n.device.number, uint32(i))
	}
	return &n.pool.pages[number], n.pageState(n.pool.number, uint32(number))
}

// lent says whether a grant lets the page be read.
func (r *recorder) lent(n *node, index uint32) bool {
	return slices.ContainsFunc(n.pool.lent, func(g *grant) bool { return r.w.standing(n, g) && g.place(index) >= 0 })
}

func (r *recorder) seenRefs(n *node, s pageSeen) []int {
	var refs []int
	if s.grant != 0 {
		refs = append(refs, r.grantRef(n.id, n.life, s.grant))
	}
	if s.ticket != 0 {
		refs = append(refs, r.ticketRef(s.ticket))
		if name := r.w.requestOf(s.ticket); name != nil {
			refs = append(refs, r.requestRef(name))
		}
	}
	if s.known {
		refs = append(refs, r.keyRef(s.key))
	}
	return refs
}
