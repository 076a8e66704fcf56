package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// abandoned records a request that was abandoned. Messages that arrive for the request later are refused, and so their
// sender learns that nobody wants its chunks.
type abandoned struct {
	request uint64
	until   effects.Time
}

// An order is an Abandon command that is in progress. The order has its outcome when all rows of its request have
// ended. Until then each row may or may not have ended yet, and messages for the request are refused, however short the
// time for which abandoned requests are recorded.
type order struct {
	ticket  effects.Ticket
	request uint64
}

// Abandons contains the requests that were abandoned recently, oldest first, and the Abandon commands that are in
// progress.
type Abandons struct {
	slab  table.Slab[abandoned]
	index table.Index
	order table.List

	orders  table.Slab[order]
	ordered table.Index
	queue   table.List // all orders, oldest first
	// The current sweep is for this number of orders, counted from the oldest.
	swept int
}

// Emptied returns an empty Abandons that records up to max requests and has up to max orders in progress at a time.
// Emptied reuses the memory of a, which must not be used afterwards.
func (a *Abandons) Emptied(max uint32) Abandons {
	return Abandons{
		slab: a.slab.Emptied(int(max)), index: a.index.Emptied(),
		orders: a.orders.Emptied(int(max)), ordered: a.ordered.Emptied(),
	}
}

// Order begins an Abandon. Order returns false if too many are in progress.
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

// Orders returns how many orders are in progress, and how many may be.
func (a *Abandons) Orders() (now, most int) { return a.orders.Len(), a.orders.Max() }

// Ordered reports whether a request is being abandoned.
func (a *Abandons) Ordered(request uint64) bool {
	return request != 0 && a.ordered.Seek(request).Found()
}

// Sweeps notes that a sweep begins, which covers all current orders.
func (a *Abandons) Sweeps() { a.swept = a.queue.Len() }

// Swept removes the oldest order that the ended sweep covered and returns its ticket, or zero if no such order is left.
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

// Note records a request for the time ttl. A request is recorded at most once. If the table is full, the oldest record
// is dropped. Each call drops at most two expired records, so that a single call never drops all expired records.
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

// Has reports whether a request was abandoned recently, or is being abandoned.
func (a *Abandons) Has(now effects.Time, request uint64) bool {
	if request == 0 {
		return false
	}
	x := a.slab.Get(a.index.Seek(request).Handle())
	return x != nil && x.until > now || a.Ordered(request)
}

// Len returns the number of recorded requests.
func (a *Abandons) Len() int { return a.slab.Len() }
