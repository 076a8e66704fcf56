package allocqueue

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/memory"
	"github.com/kvferry/kvferry/fsm/table"
)

// Names cost nothing, so turns do not go by names alone: a host that sends its requests under a hundred names must have
// no more turns than a host with one. A class belongs to an origin (memory.Pools.OriginSlotOf), and the engine's class is
// an origin of its own. Origins take turns, and the classes of an origin take turns among themselves. The same two rules
// hold at both levels:
//
//   - After a service, all others come before the one that was served: the other origins before its origin, and in the
//     origin the other classes before its class.
//   - A head may be passed BypassMax times. Then pages are collected for it (findCollector): if other origins passed it,
//     no other origin is served until its origin is; if other classes of its origin did, no other class of the origin is
//     served until its class is. A service of an origin ends the count of passes by other origins of all of its requests.
//
// Example: a host sends requests for all pages under the names a1 to a9, and another host under the name b. They are
// served in the order a1, b, a2, b, a3, b.

// A level says by which requests a head is passed.
type level int

const (
	betweenOrigins level = iota // by requests of other origins
	withinOrigin                // by requests of other classes of the same origin
)

// passCounts counts, by level, how often a request was passed while it was the head of its class. Between origins it
// counts the passes since the origin was served last.
type passCounts [2]uint32

// turns says which origin has the turn, and which class within each origin.
type turns struct {
	origin  int
	classes []int // by origin
}

func (t *turns) recycle(classes int) turns {
	return turns{classes: table.RecycleSlice(t.classes, classes+memory.OriginSlotsMax(classes))}
}

// A Head is the request of a class that is served next, or our engine's reservation.
type Head struct {
	Request   table.Handle // zero: the engine's reservation
	class     int
	origin    int
	passes    passCounts
	fitsShare bool // otherwise the head waits because of the share of its class: it is not passed, and pages do not help it
}

// originOf returns the number of the origin of a class. A class whose peer has no origin is an origin of its own.
func (p *Queue) originOf(v *env.Env, class int) int {
	if slot := v.Pools.OriginSlotOf(class); slot >= 0 {
		return len(p.queues) + slot
	}
	return class
}

// listHeads returns the heads of all classes, by class. The result is valid until the next call.
func (p *Queue) listHeads(v *env.Env) []Head {
	p.heads = p.heads[:0]
	if !p.HasWaiting() {
		return p.heads
	}
	for class := range p.queues {
		x, pages := Head{class: class}, p.engineHead.pages
		if class != EngineClass {
			if x.Request = p.frontOf(v, class); x.Request == 0 {
				continue
			}
			pages = p.rows.Get(x.Request).PagesMax
		} else if p.engineHead.reservation == 0 {
			continue
		}
		x.origin, x.passes, x.fitsShare = p.originOf(v, class), *p.passesOf(x.Request), v.Pools.FitsShare(v.Pool, class, pages)
		p.heads = append(p.heads, x)
	}
	return p.heads
}

// passesOf returns the counts of passes of a request, or of the engine's reservation.
func (p *Queue) passesOf(h table.Handle) *passCounts {
	if h == 0 {
		return &p.engineHead.passes
	}
	return &p.rows.Get(h).passes
}

// findCollector returns the head for which pages are collected at a level, because the head was passed BypassMax times
// or more, and nil if there is none. If several heads qualify, it is the head that was passed most often: if all of them
// were served, requests that need few pages could pass a large request for ever. A head that waits because of the share
// of its class does not qualify, because further free pages do not help that head.
func (p *Queue) findCollector(heads []Head, at level) (found *Head) {
	for i := range heads {
		if x := &heads[i]; x.fitsShare && x.passes[at] >= p.cfg.BypassMax && (found == nil || x.passes[at] > found.passes[at]) {
			found = x
		}
	}
	return found
}

// keepOrigin removes the heads of all other origins.
func keepOrigin(heads []Head, origin int) []Head {
	return slices.DeleteFunc(heads, func(x Head) bool { return x.origin != origin })
}

// HeadsInTurn returns the heads that may be served now, in the order of their turns. After any of them was served, or
// RecordResult has reported that the queue has moved, the caller must get the heads anew.
func (p *Queue) HeadsInTurn(v *env.Env) []Head {
	heads := p.listHeads(v)
	if c := p.findCollector(heads, betweenOrigins); c != nil {
		heads = keepOrigin(heads, c.origin)
	}
	slices.SortFunc(heads, p.compareTurns)
	p.inTurn = p.inTurn[:0]
	for len(heads) > 0 {
		n := 1
		for n < len(heads) && heads[n].origin == heads[0].origin {
			n++
		}
		if c := p.findCollector(heads[:n], withinOrigin); c != nil {
			p.inTurn = append(p.inTurn, *c)
		} else {
			p.inTurn = append(p.inTurn, heads[:n]...)
		}
		heads = heads[n:]
	}
	return p.inTurn
}

// compareTurns orders heads by the turns of their origins, and of their classes within an origin.
func (p *Queue) compareTurns(a, b Head) int {
	// distance returns how many turns pass until place has the turn.
	distance := func(place, turn, places int) int { return (place - turn + places) % places }
	if origins := len(p.turns.classes); a.origin != b.origin {
		return distance(a.origin, p.turns.origin, origins) - distance(b.origin, p.turns.origin, origins)
	}
	turn := p.turns.classes[a.origin]
	return distance(a.class, turn, len(p.queues)) - distance(b.class, turn, len(p.queues))
}

// CanServeNow reports whether a request of a tenant that arrives now may be served at once: no request of the same class
// waits, except ones of other tenants that are held back, and no pages are collected for another origin, or for another
// class of the same origin.
func (p *Queue) CanServeNow(v *env.Env, class int, tenant effects.Tenant) bool {
	if p.mustFollow(v, class, tenant) {
		return false
	}
	heads, origin := p.listHeads(v), p.originOf(v, class)
	if c := p.findCollector(heads, betweenOrigins); c != nil && c.origin != origin {
		return false
	}
	return p.findCollector(keepOrigin(heads, origin), withinOrigin) == nil
}

// CountPass records that a request of the class served was served, at once or after a wait. The turn goes on, and the
// heads of other classes were passed, except heads that wait because of the share of their class.
func (p *Queue) CountPass(v *env.Env, served int) {
	if !p.HasWaiting() {
		return
	}
	origin := p.originOf(v, served)
	p.turns.origin, p.turns.classes[origin] = (origin+1)%len(p.turns.classes), (served+1)%len(p.queues)
	p.clearPasses(v, origin)
	for _, x := range p.listHeads(v) {
		switch {
		case !x.fitsShare || x.class == served:
		case x.origin == origin:
			p.passesOf(x.Request)[withinOrigin]++
		default:
			p.passesOf(x.Request)[betweenOrigins]++
		}
	}
}

// clearPasses ends the counts of passes by other origins, because the origin was served. Requests that were heads before
// and are not now have counts, too.
func (p *Queue) clearPasses(v *env.Env, origin int) {
	if origin == p.originOf(v, EngineClass) {
		p.engineHead.passes[betweenOrigins] = 0
	}
	for slot := range p.rows.Slots() {
		if q := p.rows.Get(p.rows.At(slot)); q != nil && p.originOf(v, q.Class) == origin {
			q.passes[betweenOrigins] = 0
		}
	}
}
