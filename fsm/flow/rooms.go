package flow

import (
	"math"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/deferred"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/land"
	"github.com/kvferry/kvferry/fsm/pending"
	"github.com/kvferry/kvferry/fsm/store"
)

// Rooms are what both targets stand on. They are handed to a target by argument, and know none.
type Rooms struct {
	Cfg      RoomsConfig `snap:"share"`
	Store    store.Store
	Pending  pending.Pending
	Landings land.Landings
	Gets     engine.Gets
	Deferred deferred.Deferred
	Fetches  deferred.Fetches
	Abandons Abandons
	Draining bool
	busy     []uint32 `snap:"scratch"`
	Hashes   []uint64 `snap:"scratch"`
}

// NewRooms returns empty rooms for so many classes. seed is a secret of the rank.
func NewRooms(cfg RoomsConfig, classes int, seed uint64) Rooms {
	return Rooms{
		Cfg: cfg,
		Store: store.New(store.Config{
			Seed: seed, Entries: int(cfg.EntriesMax), Places: int(cfg.PlacesMax), Pages: int(cfg.PagesMax),
			Claims: int(cfg.ClaimsMax), Classes: classes, TTL: cfg.ClaimTTL, Retention: cfg.Retention,
		}),
		Pending: pending.New(pending.Config{
			Places: int(cfg.WaitersMax), Bytes: int(min(cfg.WaitingBytes, math.MaxInt)), BypassMax: cfg.OvertakesMax,
		}, classes),
		Landings: land.New(land.Config{
			Leased: cfg.Leased, GrantsMax: int(cfg.GrantsMax), ClaimTTL: cfg.ClaimTTL, PageBytes: cfg.PageBytes,
			TokenBytes: cfg.Layout.TokenBytes(),
		}, classes),
		Gets:     engine.NewGets(int(cfg.GetsMax), cfg.GetWaitMax),
		Deferred: deferred.New(deferred.Config{OffersMax: int(cfg.OffersMax), LeadMin: cfg.LeadMin}, classes),
		Fetches:  deferred.NewFetches(cfg.Pipeline, cfg.FetchTimeout),
		Abandons: newAbandons(cfg.AbandonsMax),
	}
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
func (r *Rooms) Stated(ns uint64) effects.Duration {
	return effects.Duration(min(ns, uint64(r.Cfg.LoanMax)))
}

// Wanted says whether somebody may come for what lands. A rank that drains keeps nothing for readers, who are refused
// already; nor does an abandoned request have any.
func (r *Rooms) Wanted(v *env.Env, x *land.Landing) bool {
	return !r.Draining && !r.Abandons.Has(v.Now, x.Request)
}

// Quiet is when a grant ends by itself. A plain sender on a plane nobody watches is quiet only when the stated
// residual has passed too: its writes may land until then, and nothing will ever tell (rule M5).
func (r *Rooms) Quiet(peer effects.Incarnation, ends effects.Time) effects.Time {
	if peer == (effects.Incarnation{}) {
		return ends.Add(r.Cfg.Residual)
	}
	return ends
}

// Short is what a batch lacks of which the plan was taken back. It can use no page after until.
func (r *Rooms) Short(p *land.Plan, until effects.Time) pending.Shortfall {
	if p.Unpromised { // Where there was no room to promise one that is ready, there may be now.
		return pending.Shortfall{}
	}
	return pending.Shortfall{Pages: p.Fresh(), Readied: r.Store.Readied(), Until: until}
}

// LoseAll notes that what a refused request or offer was for is not expected from it any more. One that its sender
// is to repeat at once still brings it.
func (r *Rooms) LoseAll(keys [][]byte, code effects.Code) {
	if !r.Gets.Waits() || code == effects.Stale || code == effects.Expired {
		return
	}
	for _, key := range keys {
		r.Store.Lose(r.Store.Hash(key))
	}
}

// Wake looks again at the Gets that waited for keys that became ready, or that will not.
func (r *Rooms) Wake(v *env.Env) {
	if len(r.Store.Became()) > 0 {
		r.Deferred.Stir()
	}
	r.Gets.Wake(v, &r.Store, &r.Pending)
}

// Hope says whether a chunk is here, or may come of what is here; to look at only.
func (r *Rooms) Hope(key []byte) bool {
	hash := r.Store.Hash(key)
	return r.Store.MayCome(hash, key) || r.Pending.Asked(hash)
}

// Shifted says, once, that somebody left the line for pages: who was behind may go on.
func (r *Rooms) Shifted() bool { return r.Pending.Shifted() }

// LookAgain has the line looked at again: whom pages were kept for may have lost the way to what it offers.
func (r *Rooms) LookAgain() { r.Pending.Wake() }

// OnLanded takes the pages that a fenced plane says are whole.
func (r *Rooms) OnLanded(v *env.Env, ev *effects.Landed) {
	x := r.Landings.Find(ev.Grant)
	if x == nil || x.Peer != ev.Peer || x.Reads() {
		land.Unknown(v, ev)
		return
	}
	r.Landings.Landed(v, &r.Store, x, ev, len(ev.Pages) > 0 && r.Wanted(v, x))
}

// OnRevoked ends the quarantine.
func (r *Rooms) OnRevoked(v *env.Env, ev *effects.Revoked) {
	r.Landings.Revoked(v, &r.Store, ev.Grant)
}

// OnPeerLost handles that a peer is gone.
func (r *Rooms) OnPeerLost(v *env.Env, peer effects.Incarnation) { r.Landings.PeerLost(v, peer) }
