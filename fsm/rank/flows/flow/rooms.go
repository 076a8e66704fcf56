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

// Rooms are what targets stand on. They come with each step, and know no flow.
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

// Busy counts what is kept for each class beside its pages: while there is any the class stays its peer's.
func (r *Rooms) Busy() []uint32 {
	r.busy = r.busy[:0]
	for class := range r.Pending.Classes() {
		offers, _ := r.Deferred.CountOf(class)
		r.busy = append(r.busy, uint32(r.Pending.Of(class)+offers))
	}
	return r.busy
}

// Stated is how long a sender says that its lease stands, and no longer than we believe anybody: less is always safe.
func (e *Env) Stated(ns uint64) effects.Duration {
	return effects.Duration(min(ns, uint64(e.Cfg.LeaseMax)))
}

// Wanted says whether somebody may come for what lands. A rank that drains keeps nothing for readers, who are refused
// already; nor does an abandoned request have any.
func (e *Env) Wanted(x *landing.Landing) bool {
	return !e.Draining && !e.Abandons.Has(e.Now, x.Request)
}

// Short is what a batch lacks of which the plan was taken back. It can use no page after until.
func (r *Rooms) Short(p *landing.Plan, until effects.Time) allocqueue.Shortfall {
	if p.Unpromised { // Where there was no room to promise one that is ready, there may be now.
		return allocqueue.Shortfall{}
	}
	return allocqueue.Shortfall{Pages: p.Fresh(), Readied: r.Store.Readied(), Until: until}
}

// MayFit says whether what waits may fit now, as far as that can be told without looking at its keys.
func (e *Env) MayFit(q *allocqueue.Row) bool {
	return e.Landings.Room(&e.Env, &e.Store, int(q.Keys)) &&
		!q.Lacks.Stands(&e.Env, q.Class, e.Store.Readied(), e.Store.Spare(e.Pool))
}

// LoseAll notes that what a refused request or offer was for is not expected from it any more. One that its sender
// is to repeat at once still brings it.
func (r *Rooms) LoseAll(hashes []uint64, code effects.Code) {
	if !r.Gets.Waits() || code == effects.Stale || code == effects.Expired {
		return
	}
	for _, hash := range hashes {
		r.Store.Lose(hash)
	}
}

// Readable is how many chunks, from the first on, are ready here.
func (r *Rooms) Readable(keys [][]byte) (hits uint32) {
	for _, key := range keys {
		if _, ok := r.Store.Ready(r.Store.Find(r.Store.Hash(key), key)); !ok {
			break
		}
		hits++
	}
	return hits
}

// Wake looks again at the Gets that waited for keys that became ready, or that will not.
func (r *Rooms) Wake(v *env.Env) {
	if len(r.Store.Became()) > 0 {
		r.Deferred.Stir()
	}
	r.Gets.Wake(v, &r.Store, &r.Ended, &r.Pending)
}

// HearEnded ends the Gets, and has the fetches looked at, that wait for requests of which nothing more comes: as many
// as this step has work for.
func (r *Rooms) HearEnded(v *env.Env) {
	for request := r.Ended.News(); request != 0; request = r.Ended.News() {
		if !r.Gets.Over(v, &r.Store, &r.Ended, request) {
			return
		}
		r.Fetches.LookAgain()
		r.Ended.Heard()
	}
}

// Hope says whether a chunk is here, or may come of what is here; to look at only.
func (r *Rooms) Hope(key []byte) bool {
	hash := r.Store.Hash(key)
	return r.Store.MayCome(hash, key) || r.Pending.Asked(hash)
}
