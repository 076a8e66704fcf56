package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// abandonedRequest records a request that was abandoned. Messages that arrive for the request later are refused, and so
// their sender learns that nobody wants its chunks.
type abandonedRequest struct {
	request uint64
	until   effects.Time
}

// An abandonCommand is an Abandon command that is in progress. The order has its outcome when all rows of its request
// have ended. Until then each row may or may not have ended yet, and messages for the request are refused, however
// short the time for which abandoned requests are recorded.
type abandonCommand struct {
	ticket  effects.Ticket
	request uint64
}

// Abandons contains the requests that were abandoned recently, oldest first, and the Abandon commands that are in
// progress.
type Abandons struct {
	recent    table.Slab[abandonedRequest]
	byRequest table.Index
	byAge     table.List

	commands          table.Slab[abandonCommand]
	commandsByRequest table.Index
	queue             table.List // all orders, oldest first
	// The current sweep is for this number of orders, counted from the oldest.
	sweptCount int
}

// Recycle returns an empty Abandons that records up to max requests and has up to max orders in progress at a time.
// Recycle reuses the memory of a, which must not be used afterwards.
func (a *Abandons) Recycle(max uint32) Abandons {
	return Abandons{
		recent: a.recent.Recycle(int(max)), byRequest: a.byRequest.Recycle(),
		commands: a.commands.Recycle(int(max)), commandsByRequest: a.commandsByRequest.Recycle(),
	}
}

// StartCommand begins an Abandon. StartCommand returns false if too many are in progress.
func (a *Abandons) StartCommand(t effects.Ticket, request uint64) bool {
	h, x := a.commands.Add()
	if x == nil {
		return false
	}
	*x = abandonCommand{ticket: t, request: request}
	a.commandsByRequest.Add(request, h)
	a.commands.PushBack(&a.queue, h)
	return true
}

// CountCommands returns how many orders are in progress, and how many may be.
func (a *Abandons) CountCommands() (open, limit int) { return a.commands.Len(), a.commands.Max() }

// IsAbandoning reports whether a request is being abandoned.
func (a *Abandons) IsAbandoning(request uint64) bool {
	return request != 0 && a.commandsByRequest.Find(request).Found()
}

// BeginSweep notes that a sweep begins, which covers all current orders.
func (a *Abandons) BeginSweep() { a.sweptCount = a.queue.Len() }

// PopSwept removes the oldest order that the ended sweep covered and returns its ticket, or zero if no such order is
// left.
func (a *Abandons) PopSwept() effects.Ticket {
	if a.sweptCount == 0 {
		return 0
	}
	a.sweptCount--
	h := a.queue.Front()
	x := a.commands.Get(h)
	t := x.ticket
	a.commandsByRequest.Remove(x.request, h)
	a.commands.Unlink(&a.queue, h)
	a.commands.Remove(h)
	return t
}

func (a *Abandons) removeRecord(h table.Handle) {
	a.byRequest.Remove(a.recent.Get(h).request, h)
	a.recent.Unlink(&a.byAge, h)
	a.recent.Remove(h)
}

// RecordRequest records a request for the time ttl. A request is recorded at most once. If the table is full, the
// oldest record is dropped. Each call drops at most two expired records, so that a single call never drops all expired
// records.
func (a *Abandons) RecordRequest(now effects.Time, request uint64, ttl effects.Duration) {
	if a.recent.Max() == 0 || ttl <= 0 {
		return
	}
	if h := a.byRequest.Find(request).Handle(); h != 0 {
		a.removeRecord(h)
	}
	for range 2 {
		if x := a.recent.Get(a.byAge.Front()); x != nil && (a.recent.Full() || x.until <= now) {
			a.removeRecord(a.byAge.Front())
		}
	}
	h, x := a.recent.Add()
	*x = abandonedRequest{request: request, until: now.Add(ttl)}
	a.byRequest.Add(request, h)
	a.recent.PushBack(&a.byAge, h)
}

// IsAbandoned reports whether a request was abandoned recently, or is being abandoned.
func (a *Abandons) IsAbandoned(now effects.Time, request uint64) bool {
	if request == 0 {
		return false
	}
	x := a.recent.Get(a.byRequest.Find(request).Handle())
	return x != nil && x.until > now || a.IsAbandoning(request)
}

// Len returns the number of recorded requests.
func (a *Abandons) Len() int { return a.recent.Len() }
