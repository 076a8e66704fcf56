package allocqueue

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// The line of those that wait for pages (rule M9): first in, first out within a class, in turn between classes. Who
// needs little may pass who needs much, but not without end: a head that was passed bypassMax times collects, and
// then nobody else is served until it is.

// A Shortfall is what a request was short of: pages for the chunks that were not here. How many were not can be told
// later without looking at them again: no fewer than then, less those that became ready since.
type Shortfall struct {
	Pages   uint32 // 0: something else
	Readied uint64
	Until   effects.Time // of an offer: from when on it is too late to read it
}

// Endless is after every instant.
const Endless = effects.Time(1<<63 - 1)

// Stands says that a request need not be looked at: what became free, or could be made so (spare pages), is not enough
// for it. Else each page that becomes free would have all of its keys looked up.
func (s Shortfall) Stands(v *env.Env, class int, readied uint64, spare uint32) bool {
	since := readied - s.Readied
	if uint64(s.Pages) <= since || v.Now > s.Until {
		return false
	}
	n := s.Pages - uint32(since)
	return n > v.Pool.Free()+spare || !v.Pools.FitsShare(v.Pool, class, n) || !v.Pools.CanLend()
}

// Tried is how it went with a request whose turn it was.
type Tried uint8

// The outcomes of a turn.
const (
	Short    Tried = iota // it waits on
	Served                // it was answered
	Unlinked              // an offer that lost the way to its pages while it waited for ours
)

// Outcome is how it went with one that its target tried to serve: done, or short of what it lacks.
func Outcome(lacks Shortfall, done bool) (Tried, Shortfall) {
	if done {
		return Served, lacks
	}
	return Short, lacks
}

// MayPass says that who comes now may be served at once: nobody of its class waits, and nobody collects.
func (p *Pending) MayPass(v *env.Env, class int) bool {
	if p.queues[class].Len() > 0 {
		return false
	}
	_, collects := p.collecting(v)
	return !collects
}

// LinksFirst says that an offer without a link to its pages waits for that first. Who comes when others of its class
// wait for pages comes after them: it joins the queue, and is linked when its turn comes.
func (p *Pending) LinksFirst(class int) bool { return p.queues[class].Len() == 0 }

// collecting is the class whose head was passed so often that pages are now kept together for it; false if there is
// none. Of several it is the one passed most: were all of them allowed to go on, those that need little could pass one
// that needs much for ever. A head that waits for its own class's share is none: others' pages do not help it.
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

// Passed counts against each head of another class that a request of this one went before it, at once or after a
// wait. One that waits for its class's share was not passed.
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

// A Collector is for whom pages are kept together, if for anybody. It stays the same while nobody is served: so it is
// looked for once for all heads that are looked at, and not for each of them.
type Collector struct {
	class int
	any   bool
}

// Collects is who collects now.
func (p *Pending) Collects(v *env.Env) (c Collector) {
	c.class, c.any = p.collecting(v)
	return c
}

// Next is the head of the class whose turn it is, and the turn goes on; zero if nobody of it waits, or if pages are
// kept together for another. own says that the turn is our engine's. After as many of neither, and shorts, as there are
// classes nobody can go on.
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

// Tried notes how it went with a head, and says whether the line moved.
func (p *Pending) Tried(v *env.Env, h table.Handle, how Tried, lacks Shortfall) bool {
	q := p.rows.Get(h)
	switch how {
	case Short:
		q.Lacks = lacks
		return false
	case Unlinked: // Who is behind it may go on, but passes nobody.
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

// Linked lets those of a class go on that waited for the link. Each is touched once for each time that it began to wait
// for one, and who waits in the queue is not.
func (p *Pending) Linked(class int) {
	queue, list := &p.queues[class], &p.linking[class]
	if list.Len() == 0 {
		return
	}
	p.dirty = true
	for h := list.Front(); h != 0; h = p.rows.Next(h) {
		p.rows.Get(h).Linking = false
	}
	// They came before all who are in the queue: nobody waits for a link but its first, or who came when it was empty.
	p.rows.Join(list, queue)
	p.rows.Join(queue, list)
}

// Shifted says, once, that the line may have moved: who was behind may go on.
func (p *Pending) Shifted() bool {
	was := p.dirty
	p.dirty = false
	return was
}
