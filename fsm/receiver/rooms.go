package receiver

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
type rooms struct {
	cfg      Config `snap:"share"`
	Store    store.Store
	pending  pending.Pending
	landings land.Landings
	gets     engine.Gets
	deferred deferred.Deferred
	fetches  deferred.Fetches
	abandons abandons
	draining bool
	busy     []uint32 `snap:"scratch"`
	hashes   []uint64 `snap:"scratch"`
}

func newRooms(cfg Config, classes int, seed uint64) rooms {
	return rooms{
		cfg: cfg,
		Store: store.New(store.Config{
			Seed: seed, Entries: int(cfg.EntriesMax), Places: int(cfg.PlacesMax), Pages: int(cfg.PagesMax),
			Claims: int(cfg.ClaimsMax), Classes: classes, TTL: cfg.ClaimTTL, Retention: cfg.Retention,
		}),
		pending: pending.New(pending.Config{
			Places: int(cfg.WaitersMax), Bytes: int(min(cfg.WaitingBytes, math.MaxInt)), BypassMax: cfg.OvertakesMax,
		}, classes),
		landings: land.New(land.Config{
			Leased: cfg.Leased, GrantsMax: int(cfg.GrantsMax), ClaimTTL: cfg.ClaimTTL, PageBytes: cfg.PageBytes,
			TokenBytes: cfg.Layout.TokenBytes(),
		}, classes),
		gets:     engine.NewGets(int(cfg.GetsMax), cfg.GetWaitMax),
		deferred: deferred.New(deferred.Config{OffersMax: int(cfg.OffersMax), LeadMin: cfg.LeadMin}, classes),
		fetches:  deferred.NewFetches(cfg.Pipeline, cfg.FetchTimeout),
		abandons: newAbandons(cfg.AbandonsMax),
	}
}

// Busy counts what is kept for each class beside its pages: while there is any the class stays its peer's.
func (r *rooms) Busy() []uint32 {
	r.busy = r.busy[:0]
	for class := range r.pending.Classes() {
		offers, _ := r.deferred.CountOf(class)
		r.busy = append(r.busy, uint32(r.pending.Of(class)+offers))
	}
	return r.busy
}

// stated is how long a sender says that its lease stands, and no longer than we believe anybody: less is always safe.
func (r *rooms) stated(ns uint64) effects.Duration {
	return effects.Duration(min(ns, uint64(r.cfg.LoanMax)))
}

// wanted says whether somebody may come for what lands. A rank that drains keeps nothing for readers, who are refused
// already; nor does an abandoned request have any.
func (r *rooms) wanted(v *env.Env, x *land.Landing) bool {
	return !r.draining && !r.abandons.has(v.Now, x.Request)
}

// quiet is when a grant ends by itself. A plain sender on a plane nobody watches is quiet only when the stated
// residual has passed too: its writes may land until then, and nothing will ever tell (rule M5).
func (r *rooms) quiet(peer effects.Incarnation, ends effects.Time) effects.Time {
	if peer == (effects.Incarnation{}) {
		return ends.Add(r.cfg.Residual)
	}
	return ends
}

// short is what a batch lacks of which the plan was taken back. It can use no page after until.
func (r *rooms) short(p *land.Plan, until effects.Time) pending.Shortfall {
	if p.Unpromised { // Where there was no room to promise one that is ready, there may be now.
		return pending.Shortfall{}
	}
	return pending.Shortfall{Pages: p.Fresh(), Readied: r.Store.Readied(), Until: until}
}

// loseAll notes that what a refused request or offer was for is not expected from it any more. One that its sender
// is to repeat at once still brings it.
func (r *rooms) loseAll(keys [][]byte, code effects.Code) {
	if !r.gets.Waits() || code == effects.Stale || code == effects.Expired {
		return
	}
	for _, key := range keys {
		r.Store.Lose(r.Store.Hash(key))
	}
}

// Wake looks again at the Gets that waited for keys that became ready, or that will not.
func (r *rooms) Wake(v *env.Env) {
	if len(r.Store.Became()) > 0 {
		r.deferred.Stir()
	}
	r.gets.Wake(v, &r.Store, &r.pending)
}

// Hope says whether a chunk is here, or may come of what is here; to look at only.
func (r *rooms) Hope(key []byte) bool {
	hash := r.Store.Hash(key)
	return r.Store.MayCome(hash, key) || r.pending.Asked(hash)
}

// Shifted says, once, that somebody left the line for pages: who was behind may go on.
func (r *rooms) Shifted() bool { return r.pending.Shifted() }

// LookAgain has the line looked at again: whom pages were kept for may have lost the way to what it offers.
func (r *rooms) LookAgain() { r.pending.Wake() }

// OnLanded takes the pages that a fenced plane says are whole.
func (r *rooms) OnLanded(v *env.Env, ev *effects.Landed) {
	x := r.landings.Find(ev.Grant)
	if x == nil || x.Peer != ev.Peer || x.Reads() {
		land.Unknown(v, ev)
		return
	}
	r.landings.Landed(v, &r.Store, x, ev, len(ev.Pages) > 0 && r.wanted(v, x))
}

// OnRevoked ends the quarantine.
func (r *rooms) OnRevoked(v *env.Env, ev *effects.Revoked) {
	r.landings.Revoked(v, &r.Store, ev.Grant)
}

// OnPeerLost handles that a peer is gone.
func (r *rooms) OnPeerLost(v *env.Env, peer effects.Incarnation) { r.landings.PeerLost(v, peer) }
