package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// An abandoned request is remembered for a while: what comes for it later is refused, and so its sender learns
// that nobody wants it.
type abandoned struct {
	request uint64
	until   effects.Time
}

// Abandons are the requests that were abandoned lately, those of longest ago first.
type Abandons struct {
	slab  table.Slab[abandoned]
	index table.Index
	order table.List
}

// NewAbandons remembers so many.
func NewAbandons(max uint32) Abandons { return Abandons{slab: table.NewSlab[abandoned](int(max))} }

func (a *Abandons) forget(h table.Handle) {
	a.index.Remove(a.slab.Get(h).request, h)
	a.slab.Unlink(&a.order, h)
	a.slab.Remove(h)
}

// Note remembers a request for so long; the oldest goes where there is no room.
func (a *Abandons) Note(now effects.Time, request uint64, ttl effects.Duration) {
	if a.slab.Max() == 0 || ttl <= 0 {
		return
	}
	if a.slab.Full() {
		a.forget(a.order.Front())
	}
	h, x := a.slab.Add()
	*x = abandoned{request: request, until: now.Add(ttl)}
	a.index.Add(request, h)
	a.slab.PushBack(&a.order, h)
}

// Has says whether a request was abandoned lately. It forgets those whose time is over.
func (a *Abandons) Has(now effects.Time, request uint64) bool {
	for h := a.order.Front(); h != 0 && a.slab.Get(h).until <= now; h = a.order.Front() {
		a.forget(h)
	}
	return request != 0 && a.index.Seek(request).Found()
}

// Len is how many are remembered.
func (a *Abandons) Len() int { return a.slab.Len() }
