package allocqueue

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// This file decides in which order requests that wait for pages are served (rule M9): first in, first out within a
// class, and in turn between classes. A request that needs few pages may pass a head that needs many, but only a
// bounded number of times. When a head was passed BypassMax times, the class of the head collects: no further class is
// served until this head is.

// A Shortfall says what a request was short of: pages for the chunks that were not here. The request can be judged
// later without another lookup of the keys: the number of missing chunks is at least Pages, less the number of chunks
// that became ready since.
type Shortfall struct {
	Pages   uint32       // pages that were missing; 0: something else was
	Readied uint64       // value of store.Readied at that time
	Until   effects.Time // of an offer: the latest time at which the chunks can be read
}

// Endless is the latest possible time.
const Endless = effects.Time(1<<63 - 1)

// Stands reports whether a request need not be tried again: the pages that are free, or that could be freed (spare),
// certainly do not suffice. Without this check each page that becomes free would cause a lookup of all keys of the
// request.
func (s Shortfall) Stands(v *env.Env, class int, readied uint64, spare uint32) bool {
	since := readied - s.Readied
	if uint64(s.Pages) <= since || v.Now > s.Until {
		return false
	}
	n := s.Pages - uint32(since)
	return n > v.Pool.Free()+spare || !v.Pools.FitsShare(v.Pool, class, n) || !v.Pools.CanLend()
}

// Tried is the result of a turn.
type Tried uint8

// The outcomes of a turn.
const (
	Short    Tried = iota // the request goes on waiting
	Served                // the request was answered
	Unlinked              // the request is an offer that lost the link to its pages while it waited for free pages here
)

// Outcome returns the result of a turn: Served if the request is done, otherwise Short with what the request lacks.
func Outcome(lacks Shortfall, done bool) (Tried, Shortfall) {
	if done {
		return Served, lacks
	}
	return Short, lacks
}

// MayPass reports whether a request that arrives now may be served at once: no request of the same class waits, and no
// class collects.
func (p *Pending) MayPass(v *env.Env, class int) bool {
	if p.queues[class].Len() > 0 {
		return false
	}
	_, collects := p.collecting(v)
	return !collects
}

// LinksFirst reports whether a new offer of this class, without a link to the pages, waits for the link first. If
// requests of the class wait for pages already, the offer joins the queue behind these, and the link is established
// when the turn comes.
func (p *Pending) LinksFirst(class int) bool { return p.queues[class].Len() == 0 }

// collecting returns the class for which pages are collected now, because the head of the class was passed BypassMax
// times or more. collecting returns false if there is none. If several classes qualify, the class whose head was passed
// most often collects: if all of these classes were served, requests that need few pages could pass a large request for
// ever. A head that waits because of the quota of the head's own class does not collect, because further free pages do
// not help that head.
func (p *Pending) collecting(v *env.Env) (most int, any bool) {
	if !p.Waits() {
		return 0, false
	}
	passed := p.cfg.BypassMax
	for class := range p.queues {
		x, waits := p.head(class)
		if !waits {
			continue
		}
		if n := *x.bypassed; (n > passed || n == passed && !any) && v.Pools.FitsShare(v.Pool, class, x.pages) {
			most, passed, any = class, n, true
		}
	}
	return most, any
}

// Passed counts a pass against the heads of the other classes: a request of class by was served before these heads, at
// once or after a wait. A head that waits because of its class's quota is not counted as passed.
func (p *Pending) Passed(v *env.Env, by int) {
	if !p.Waits() {
		return
	}
	for class := range p.queues {
		if x, waits := p.head(class); waits && class != by && v.Pools.FitsShare(v.Pool, class, x.pages) {
			*x.bypassed++
		}
	}
}

// A Collector names the class for which pages are collected, if any. The collector stays the same while no request is
// served, so a caller computes it once for a round over all heads.
type Collector struct {
	class int
	any   bool
}

// Collects returns the class that collects now.
func (p *Pending) Collects(v *env.Env) (c Collector) {
	c.class, c.any = p.collecting(v)
	return c
}

// Next returns the head of the class that has the turn, and advances the turn. Next returns zero if no request of the
// class waits, or if another class collects. own reports that the turn belongs to this rank's engine. A round is over
// when as many consecutive calls as there are classes returned nothing or a request that stays short.
func (p *Pending) Next(c Collector) (h table.Handle, own bool) {
	class := p.turn
	p.turn = (p.turn + 1) % len(p.queues)
	if _, waits := p.head(class); !waits {
		return 0, false
	}
	if c.any && c.class != class {
		return 0, false
	}
	if class == Own {
		return 0, true
	}
	return p.queues[class].Front(), false
}

// Tried records the result of a head's turn, and reports whether the queue has moved.
func (p *Pending) Tried(v *env.Env, h table.Handle, how Tried, lacks Shortfall) bool {
	q := p.rows.Get(h)
	switch how {
	case Short:
		q.Lacks = lacks
		return false
	case Unlinked:
		// The offer joins the offers that wait for a link. The requests behind it may be served, but this does not
		// count as a pass.
		p.rows.Unlink(&p.queues[q.Class], h)
		p.rows.PushBack(&p.linking[q.Class], h)
		q.Linking, q.way = true, p.ways.Of(q.Class)
	case Served:
		class := q.Class
		p.Remove(v, h)
		p.Passed(v, class)
	}
	return true
}

// Linked moves the offers of a class that waited for the link to the front of the queue for pages. Each offer is moved
// once for each time that the offer began to wait for a link. Requests that are in the queue already are not touched.
func (p *Pending) Linked(class int) {
	queue, list := &p.queues[class], &p.linking[class]
	if list.Len() == 0 {
		return
	}
	p.dirty = true
	for h := list.Front(); h != 0; h = p.rows.Next(h) {
		p.rows.Get(h).Linking = false
	}
	// The linked offers came before all requests in the queue, because an offer waits for a link only if the offer was
	// the head of the queue, or arrived when the queue was empty.
	p.rows.Join(list, queue)
	p.rows.Join(queue, list)
}

// Shifted reports, once, that the queue may have moved, so that the requests behind may be served.
func (p *Pending) Shifted() bool {
	was := p.dirty
	p.dirty = false
	return was
}
