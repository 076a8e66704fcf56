package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
	"github.com/kvferry/kvferry/fsm/rank/peers/outcomes"
)

// Rooms contains the rooms that all targets of a rank share. Rooms know no flow.
type Rooms struct {
	Store     store.Store
	Pending   allocqueue.Queue
	Landings  landing.Landings
	Gets      engine.Gets
	Deferred  deferred.Offers
	Fetches   deferred.Fetches
	Abandons  Abandons
	Outcomes  outcomes.Requests
	classRows []uint32 `snap:"scratch"`
	Hashes    []uint64 `snap:"scratch"`
}

// CountClassRows returns, for each class, the number of rows that are kept for the class beside its pages. While there
// are any, the class cannot be given to another peer.
func (r *Rooms) CountClassRows() []uint32 {
	r.classRows = r.classRows[:0]
	for class := range r.Pending.Classes() {
		offers, _ := r.Deferred.CountsOfClass(class)
		r.classRows = append(r.classRows, uint32(r.Pending.RowsOf(class)+offers))
	}
	return r.classRows
}

// StatedLease returns how long a sender's lease lasts according to the sender, but at most ReadLeaseMax. A shorter time
// than the sender stated is always safe (M4).
func (e *Env) StatedLease(ns uint64) effects.Duration {
	return effects.Duration(min(ns, uint64(e.Cfg.ReadLeaseMax)))
}

// AccessEnd returns until when this rank may begin accesses under a lease, by its own clock (M4). The lease began at since
// or later, and its length counts by the clock of its owner, which may run faster than this one. What is left of it at the
// end, LeaseGuard, is for a driver that is slow between reading the clock and the access.
func (e *Env) AccessEnd(since effects.Time, lease effects.Duration) effects.Time {
	return since.Add(link.ShortestSpan(lease, e.Cfg.DriftPPM) - e.Cfg.LeaseGuard)
}

// IsLandingWanted reports whether an engine may request the chunks of a landing. In a rank that drains none are kept,
// because Gets are already refused there; and nobody wants the chunks of an abandoned request.
func (e *Env) IsLandingWanted(x *landing.Landing) bool {
	return !e.Draining && !e.Abandons.IsAbandoned(e.Now, x.Request)
}

// ShortfallOf returns what a batch lacks after its plan was taken back. Pages that become free after until are of no
// use to the batch.
func (r *Rooms) ShortfallOf(p *landing.Plan, until effects.Time) allocqueue.Shortfall {
	// There was no room to promise a chunk that is ready. There may be room now, so nothing can be said in advance.
	if p.Unpromised {
		return allocqueue.Shortfall{}
	}
	return allocqueue.Shortfall{Pages: p.PagesNeeded(), TotalReadied: r.Store.TotalReadied(), ReadableUntil: until}
}

// MayFit reports whether a pending request may fit now, as far as that can be decided without looking at its keys.
func (e *Env) MayFit(q *allocqueue.Row) bool {
	return e.Landings.HasRoom(&e.Env, &e.Store, int(q.PagesMax)) &&
		!q.StillApplies(&e.Env, e.Store.TotalReadied(), e.Store.EvictablePages(e.Pool))
}

// LoseChunks notes that the chunks of a refused request or offer are not expected from this source any more. If the
// code tells the sender to repeat the request at once (Stale, Expired), the chunks are still expected.
func (r *Rooms) LoseChunks(hashes []uint64, code effects.Code) {
	if !r.Gets.HasWaiting() || code == effects.Stale || code == effects.Expired {
		return
	}
	for _, hash := range hashes {
		r.Store.RecordLostSource(hash)
	}
}

// CountReadable returns how many chunks, counted from the first, are ready here.
func (r *Rooms) CountReadable(keys [][]byte) (hits uint32) {
	for _, key := range keys {
		if _, ok := r.Store.ReadyPage(r.Store.Find(r.Store.HashKey(key), key)); !ok {
			break
		}
		hits++
	}
	return hits
}

// WakeGets looks again at the Gets that wait for keys that have become ready, or that can no longer become ready.
func (r *Rooms) WakeGets(v *env.Env) {
	if len(r.Store.ReadyKeys()) > 0 {
		r.Deferred.MarkChanged()
	}
	r.Gets.WakeReady(v, &r.Store, &r.Outcomes, &r.Pending)
}

// ProcessEnded ends the Gets that wait for chunks of requests that have ended, and has the fetches for these requests
// looked at, as many as this step has work for.
func (r *Rooms) ProcessEnded(v *env.Env) {
	for request := r.Outcomes.NextEnded(); request != 0; request = r.Outcomes.NextEnded() {
		if !r.Gets.FinishRequest(v, &r.Store, &r.Outcomes, request) {
			return
		}
		r.Fetches.RequestPass()
		r.Outcomes.PopEnded()
	}
}

// MayArrive reports whether a chunk is here, or may arrive because of rows that are here. MayArrive is for tests and
// oracles.
func (r *Rooms) MayArrive(key []byte) bool {
	hash := r.Store.HashKey(key)
	return r.Store.MayArrive(hash, key) || r.Pending.HasKey(hash)
}
