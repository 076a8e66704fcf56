package flow

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/flows/deferred"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/fsm/rank/memory/allocqueue"
	"github.com/kvferry/kvferry/fsm/rank/memory/landing"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/outcomes"
)

// Rooms contains the rooms that all targets of a rank share. Rooms know no flow.
type Rooms struct {
	Store    store.Store
	Pending  allocqueue.Pending
	Landings landing.Landings
	Gets     engine.Gets
	Deferred deferred.Deferred
	Fetches  deferred.Fetches
	Abandons Abandons
	Ended    outcomes.Requests
	busy     []uint32 `snap:"scratch"`
	Hashes   []uint64 `snap:"scratch"`
}

// Busy returns, for each class, the number of rows that are kept for the class beside its pages. While there are any,
// the class cannot be given to another peer.
func (r *Rooms) Busy() []uint32 {
	r.busy = r.busy[:0]
	for class := range r.Pending.Classes() {
		offers, _ := r.Deferred.CountOf(class)
		r.busy = append(r.busy, uint32(r.Pending.Of(class)+offers))
	}
	return r.busy
}

// Stated returns how long a sender's lease lasts according to the sender, but at most ReadLeaseMax. A shorter time than the
// sender stated is always safe (M4).
func (e *Env) Stated(ns uint64) effects.Duration {
	return effects.Duration(min(ns, uint64(e.Cfg.ReadLeaseMax)))
}

// Wanted reports whether an engine may request the chunks of a landing. In a rank that drains none are kept, because
// Gets are already refused there; and nobody wants the chunks of an abandoned request.
func (e *Env) Wanted(x *landing.Landing) bool {
	return !e.Draining && !e.Abandons.Has(e.Now, x.Request)
}

// Short returns what a batch lacks after its plan was taken back. Pages that become free after until are of no use to
// the batch.
func (r *Rooms) Short(p *landing.Plan, until effects.Time) allocqueue.Shortfall {
	// There was no room to promise a chunk that is ready. There may be room now, so nothing can be said in advance.
	if p.Unpromised {
		return allocqueue.Shortfall{}
	}
	return allocqueue.Shortfall{Pages: p.Fresh(), Readied: r.Store.Readied(), Until: until}
}

// MayFit reports whether a pending request may fit now, as far as that can be decided without looking at its keys.
func (e *Env) MayFit(q *allocqueue.Row) bool {
	return e.Landings.Room(&e.Env, &e.Store, int(q.Keys)) &&
		!q.Lacks.Stands(&e.Env, q.Class, e.Store.Readied(), e.Store.Spare(e.Pool))
}

// LoseAll notes that the chunks of a refused request or offer are not expected from this source any more. If the code
// tells the sender to repeat the request at once (Stale, Expired), the chunks are still expected.
func (r *Rooms) LoseAll(hashes []uint64, code effects.Code) {
	if !r.Gets.Waits() || code == effects.Stale || code == effects.Expired {
		return
	}
	for _, hash := range hashes {
		r.Store.Lose(hash)
	}
}

// Readable returns how many chunks, counted from the first, are ready here.
func (r *Rooms) Readable(keys [][]byte) (hits uint32) {
	for _, key := range keys {
		if _, ok := r.Store.Ready(r.Store.Find(r.Store.Hash(key), key)); !ok {
			break
		}
		hits++
	}
	return hits
}

// Wake looks again at the Gets that wait for keys that have become ready, or that can no longer become ready.
func (r *Rooms) Wake(v *env.Env) {
	if len(r.Store.Became()) > 0 {
		r.Deferred.Stir()
	}
	r.Gets.Wake(v, &r.Store, &r.Ended, &r.Pending)
}

// HearEnded ends the Gets that wait for chunks of requests that have ended, and has the fetches for these requests
// looked at, as many as this step has work for.
func (r *Rooms) HearEnded(v *env.Env) {
	for request := r.Ended.News(); request != 0; request = r.Ended.News() {
		if !r.Gets.Over(v, &r.Store, &r.Ended, request) {
			return
		}
		r.Fetches.LookAgain()
		r.Ended.Heard()
	}
}

// Hope reports whether a chunk is here, or may arrive because of rows that are here. Hope is for tests and oracles.
func (r *Rooms) Hope(key []byte) bool {
	hash := r.Store.Hash(key)
	return r.Store.MayCome(hash, key) || r.Pending.Asked(hash)
}
