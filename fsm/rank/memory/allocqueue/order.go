package allocqueue

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
)

// This file decides in which order the requests of a class that wait for pages are served (rule M9): first in, first
// out. The order between classes is in turns.go.
//
// A request that only the share of its tenant keeps from pages is held back: it and the requests of the same tenant in
// the class stay where they are, and the first request of another tenant is the head of the class. Otherwise a tenant
// with too many pages would keep the other tenants of its senders waiting.

// A Shortfall says what a request was short of: pages for the chunks that were not here. The request can be judged
// later without another lookup of the keys: the number of missing chunks is at least Pages, less the number of chunks
// that became ready since.
type Shortfall struct {
	Pages         uint32       // pages that were missing; 0: something else was
	TotalReadied  uint64       // value of Store.TotalReadied at that time
	ReadableUntil effects.Time // of an offer: the latest time at which the chunks can be read
}

// MaxTime is the latest possible time.
const MaxTime = effects.Time(1<<63 - 1)

// StillApplies reports whether a request that was tried need not be tried again: the pages that are free, or that could be freed
// (spare), certainly do not suffice. Without this check each page that becomes free would cause a lookup of all keys of
// the request.
func (q *Row) StillApplies(v *env.Env, readied uint64, spare uint32) bool {
	n := q.Shortfall.pagesLacking(readied)
	if n == 0 || v.Now > q.Shortfall.ReadableUntil {
		return false
	}
	return n > v.Pool.FreePages()+spare || !v.Pools.FitsShare(v.Pool, q.Class, n) || !v.Pool.FitsTenant(q.Tenant, n) ||
		!v.Pools.HasGrantSlot()
}

// pagesLacking returns a number of pages that are certainly still missing.
func (s Shortfall) pagesLacking(readied uint64) uint32 {
	if since := readied - s.TotalReadied; since < uint64(s.Pages) {
		return s.Pages - uint32(since)
	}
	return 0
}

// exceedsTenant reports whether the share of the tenant keeps a request that was tried from pages.
func (q *Row) exceedsTenant(v *env.Env, readied uint64) bool {
	n := q.Shortfall.pagesLacking(readied)
	return n > 0 && v.Now <= q.Shortfall.ReadableUntil && !v.Pool.FitsTenant(q.Tenant, n)
}

// frontOf returns the request of a class that is served next, or zero: the first one without a request of its tenant
// before it, or at its place, that is held back.
func (p *Queue) frontOf(v *env.Env, class int) table.Handle {
	h := p.queues[class].Front()
	if p.heldBackCount == 0 {
		return h
	}
	v.Pool.BeginTenantScan()
	for ; h != 0; h = p.rows.Next(h) {
		q := p.rows.Get(h)
		if q.heldBack {
			v.Pool.MarkTenant(q.tenantRow)
		} else if !v.Pool.IsTenantMarked(q.tenantRow) {
			return h
		}
	}
	return 0
}

// mustFollow reports whether a request of the tenant that arrives now in the class has to wait for earlier requests: one is
// not held back, or is of the same tenant.
func (p *Queue) mustFollow(v *env.Env, class int, tenant effects.Tenant) bool {
	if p.heldBackCount == 0 || p.frontOf(v, class) != 0 {
		return p.queues[class].Len() > 0
	}
	for h := p.queues[class].Front(); h != 0; h = p.rows.Next(h) {
		if p.rows.Get(h).Tenant == tenant {
			return true
		}
	}
	return false
}

// ReviewHeldBack lets requests that were held back have a turn again, if their tenants may have pages now.
func (p *Queue) ReviewHeldBack(v *env.Env, readied uint64) {
	for slot := int32(0); p.heldBackCount > 0 && slot < p.rows.Slots(); slot++ {
		if q := p.rows.Get(p.rows.At(slot)); q != nil && q.heldBack && !q.exceedsTenant(v, readied) {
			p.setHeldBack(q, false)
		}
	}
}

// setHeldBack records whether a request is held back.
func (p *Queue) setHeldBack(q *Row, heldBack bool) {
	switch {
	case heldBack && !q.heldBack:
		p.heldBackCount++
	case !heldBack && q.heldBack:
		p.heldBackCount--
	}
	q.heldBack = heldBack
}

// TryResult is the result of a turn.
type TryResult uint8

// The outcomes of a turn.
const (
	Short    TryResult = iota // the request goes on waiting
	Served                    // the request was answered
	Unlinked                  // the request is an offer that lost the link to its pages while it waited for free pages here
)

// ResultOf returns the result of a turn: Served if the request is done, otherwise Short with what the request lacks.
func ResultOf(shortfall Shortfall, done bool) (TryResult, Shortfall) {
	if done {
		return Served, shortfall
	}
	return Short, shortfall
}

// WaitsForLink reports whether a new offer of this class, without a link to the pages, waits for the link first. If
// requests of the class wait for pages already, the offer joins the queue behind these, and the link is established
// when the turn comes.
func (p *Queue) WaitsForLink(class int) bool { return p.queues[class].Len() == 0 }

// RecordResult records the result of a head's turn, and reports whether the queue has moved: the request left the queue, or
// is held back from now on. readied is the present value of Store.TotalReadied.
func (p *Queue) RecordResult(v *env.Env, h table.Handle, result TryResult, shortfall Shortfall, readied uint64) bool {
	q := p.rows.Get(h)
	switch result {
	case Short:
		q.Shortfall = shortfall
		if q.exceedsTenant(v, readied) {
			v.Out.Mark(Marks.TenantHeldBack)
			p.setHeldBack(q, true)
		}
		return q.heldBack
	case Unlinked:
		// The offer joins the offers that wait for a link. The requests behind it may be served, but this does not
		// count as a pass.
		p.rows.Unlink(&p.queues[q.Class], h)
		p.rows.PushBack(&p.linking[q.Class], h)
		q.AwaitsLink, q.linkLossCount = true, p.linkLosses.CountFor(q.Class)
	case Served:
		class := q.Class
		p.Remove(v, h)
		p.CountPass(v, class)
	}
	return true
}

// RequeueLinked moves the offers of a class that waited for the link to the front of the queue for pages. Each offer is
// moved once for each time that the offer began to wait for a link. Requests that are in the queue already are not
// touched.
func (p *Queue) RequeueLinked(class int) {
	queue, list := &p.queues[class], &p.linking[class]
	if list.Len() == 0 {
		return
	}
	p.moved = true
	for h := list.Front(); h != 0; h = p.rows.Next(h) {
		p.rows.Get(h).AwaitsLink = false
	}
	// The linked offers came before all requests in the queue, because an offer waits for a link only if the offer was
	// the head of the queue, or arrived when the queue was empty.
	p.rows.JoinLists(list, queue)
	p.rows.JoinLists(queue, list)
}

// PollMoved reports, once, that the queue may have moved, so that the requests behind may be served.
func (p *Queue) PollMoved() bool {
	moved := p.moved
	p.moved = false
	return moved
}
