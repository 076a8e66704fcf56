package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// The line of those that wait for pages (rule M9): first in, first out within a class, in turn between classes. Who
// needs little may pass who needs much, but not without end: a head that was passed bypassMax times collects, and
// then nobody else is served until it is.

// A shortfall is what a request was short of: pages for the chunks that were not here. How many were not can be told
// later without looking at them again: no fewer than then, less those that became ready since.
type shortfall struct {
	pages   uint32 // 0: something else
	readied uint64
	until   effects.Time // of an offer: from when on it is too late to read it
}

// endless is after every instant.
const endless = effects.Time(1<<63 - 1)

// stands says that a request need not be looked at: what became free, or could be made so (spare pages), is not enough
// for it. Else each page that becomes free would have all of its keys looked up.
func (s shortfall) stands(v *env.Env, class int, readied uint64, spare uint32) bool {
	since := readied - s.readied
	if uint64(s.pages) <= since || v.Now > s.until {
		return false
	}
	n := s.pages - uint32(since)
	return n > v.Pool.Free()+spare || !v.Pools.FitsShare(v.Pool, class, n) || !v.Pools.CanLend()
}

// tried is how it went with a request whose turn it was.
type tried uint8

const (
	short    tried = iota // it waits on
	served                // it was answered
	unlinked              // an offer that lost the way to its pages while it waited for ours
)

// mayPass says that who comes now may be served at once: nobody of its class waits, and nobody collects.
func (p *pending) mayPass(v *env.Env, class int) bool {
	return p.queues[class].Len() == 0 && p.collectingHead(v) == 0
}

// linksFirst says that an offer without a link to its pages waits for that first. Who comes when others of its class
// wait for pages comes after them: it joins the queue, and is linked when its turn comes.
func (p *pending) linksFirst(class int) bool { return p.queues[class].Len() == 0 }

// collectingHead is the head that was passed so often that pages are now kept together for it; zero if there is none.
// Of several it is the one passed most: were all of them allowed to go on, those that need little could pass one that
// needs much for ever. A head that waits for its own class's share is none: others' pages do not help it.
func (p *pending) collectingHead(v *env.Env) (most table.Handle) {
	if p.rows.Len() == 0 {
		return 0
	}
	passed := p.cfg.bypassMax
	for class := range p.queues {
		h := p.queues[class].Front()
		if h == 0 {
			continue
		}
		q := p.rows.Get(h)
		if n := q.bypassed; (n > passed || n == passed && most == 0) && v.Pools.FitsShare(v.Pool, class, q.keys) {
			most, passed = h, n
		}
	}
	return most
}

// passed counts against each head of another class that a request of this one went before it, at once or after a
// wait. One that waits for its class's share was not passed.
func (p *pending) passed(v *env.Env, by int) {
	if p.rows.Len() == 0 {
		return
	}
	for class := range p.queues {
		if h := p.queues[class].Front(); h != 0 && class != by {
			if q := p.rows.Get(h); v.Pools.FitsShare(v.Pool, class, q.keys) {
				q.bypassed++
			}
		}
	}
}

// next is the head of the class whose turn it is, and the turn goes on; zero if nobody of it waits, or if pages are
// kept together for another. After as many zeros and shorts as there are classes nobody can go on.
func (p *pending) next(v *env.Env) table.Handle {
	h := p.queues[p.turn].Front()
	p.turn = (p.turn + 1) % len(p.queues)
	if h == 0 {
		return 0
	}
	if c := p.collectingHead(v); c != 0 && c != h {
		return 0
	}
	return h
}

// tried notes how it went with a head, and says whether the line moved.
func (p *pending) tried(v *env.Env, h table.Handle, how tried, lacks shortfall) bool {
	q := p.rows.Get(h)
	switch how {
	case short:
		q.lacks = lacks
		return false
	case unlinked: // Who is behind it may go on, but passes nobody.
		p.rows.Unlink(&p.queues[q.class], h)
		p.rows.PushBack(&p.linking[q.class], h)
		q.linking = true
	case served:
		class := q.class
		p.remove(v, h)
		p.passed(v, class)
	}
	return true
}

// linked lets those of a class go on that waited for the link.
func (p *pending) linked(class int) {
	queue, list := &p.queues[class], &p.linking[class]
	if list.Len() == 0 {
		return
	}
	p.dirty = true
	for h := list.Front(); h != 0; h = p.rows.Next(h) {
		p.rows.Get(h).linking = false
	}
	// They came before all who are in the queue: nobody waits for a link but its first, or who came when it was empty.
	for h := queue.Front(); h != 0; h = queue.Front() {
		p.rows.Unlink(queue, h)
		p.rows.PushBack(list, h)
	}
	*queue, *list = *list, table.List{}
}

// wake has the line looked at again.
func (p *pending) wake() { p.dirty = true }

// shifted says, once, that the line may have moved: who was behind may go on.
func (p *pending) shifted() bool {
	was := p.dirty
	p.dirty = false
	return was
}
