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

// An order is an Abandon that is being carried out. It has its outcome when what there was of its request has ended:
// until then each row of it may stand or have ended, and what comes for the request is refused however short a request
// is remembered.
type order struct {
	ticket  effects.Ticket
	request uint64
}

// Abandons are the requests that were abandoned lately, those of longest ago first, and those that are being abandoned.
type Abandons struct {
	slab  table.Slab[abandoned]
	index table.Index
	order table.List

	orders  table.Slab[order]
	ordered table.Index
	queue   table.List // all of them, oldest first
	swept   int        // so many of the oldest are of the sweep that is under way
}

// Emptied remembers so many, and carries out as many at a time, in the memory of a, which is not used any more.
func (a *Abandons) Emptied(max uint32) Abandons {
	return Abandons{
		slab: a.slab.Emptied(int(max)), index: a.index.Emptied(),
		orders: a.orders.Emptied(int(max)), ordered: a.ordered.Emptied(),
	}
}

// Order begins an Abandon, and says false if there are too many.
func (a *Abandons) Order(t effects.Ticket, request uint64) bool {
	h, x := a.orders.Add()
	if x == nil {
		return false
	}
	*x = order{ticket: t, request: request}
	a.ordered.Add(request, h)
	a.orders.PushBack(&a.queue, h)
	return true
}

// Orders is how many are carried out, and how many may be at a time.
func (a *Abandons) Orders() (now, most int) { return a.orders.Len(), a.orders.Max() }

// Ordered says whether a request is being abandoned.
func (a *Abandons) Ordered(request uint64) bool {
	return request != 0 && a.ordered.Seek(request).Found()
}

// Sweeps says that a sweep begins, which is for all orders that there are.
func (a *Abandons) Sweeps() { a.swept = a.queue.Len() }

// Swept takes the oldest of the orders that a sweep was for; zero if all of them were taken.
func (a *Abandons) Swept() effects.Ticket {
	if a.swept == 0 {
		return 0
	}
	a.swept--
	h := a.queue.Front()
	x := a.orders.Get(h)
	t := x.ticket
	a.ordered.Remove(x.request, h)
	a.orders.Unlink(&a.queue, h)
	a.orders.Remove(h)
	return t
}

func (a *Abandons) forget(h table.Handle) {
	a.index.Remove(a.slab.Get(h).request, h)
	a.slab.Unlink(&a.order, h)
	a.slab.Remove(h)
}

// Note remembers a request for so long, once; the oldest goes where there is no room. Of those whose time is over two
// go as one comes, and never all at once.
func (a *Abandons) Note(now effects.Time, request uint64, ttl effects.Duration) {
	if a.slab.Max() == 0 || ttl <= 0 {
		return
	}
	if h := a.index.Seek(request).Handle(); h != 0 {
		a.forget(h)
	}
	for range 2 {
		if x := a.slab.Get(a.order.Front()); x != nil && (a.slab.Full() || x.until <= now) {
			a.forget(a.order.Front())
		}
	}
	h, x := a.slab.Add()
	*x = abandoned{request: request, until: now.Add(ttl)}
	a.index.Add(request, h)
	a.slab.PushBack(&a.order, h)
}

// Has says whether a request was abandoned lately, or is being abandoned.
func (a *Abandons) Has(now effects.Time, request uint64) bool {
	if request == 0 {
		return false
	}
	x := a.slab.Get(a.index.Seek(request).Handle())
	return x != nil && x.until > now || a.Ordered(request)
}

// Len is how many are remembered.
func (a *Abandons) Len() int { return a.slab.Len() }
