// Package receiver grants pages to senders that push, reads the pages of senders that offer,
// and hands ready chunks to the engine. No reader ever sees a page before it is whole, and no page is
// used again before its writer is proven quiet.
package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/pending"
	"github.com/kvferry/kvferry/fsm/pipeline"
	"github.com/kvferry/kvferry/fsm/store"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Config is the part of the rank's configuration that the receiver needs.
type Config struct {
	Layout           protocol.Layout
	PageBytes        uint64
	Buffer           protocol.UUID
	Leased           bool
	Bearer           bool // the planes serve peers without our extensions
	Residual         effects.Duration
	ReplyForm        protocol.ReplyForm
	TrustUncommitted bool
	AllocTimeout     effects.Duration
	Lease            effects.Duration
	ClaimTTL         effects.Duration
	GetWaitMax       effects.Duration
	LeaseGuard       effects.Duration
	ReadTimeout      effects.Duration
	ReplyTimeout     effects.Duration
	FetchTimeout     effects.Duration
	LeadMin          effects.Duration
	AbandonTTL       effects.Duration // negative: what comes for an abandoned request is served
	AbandonsMax      uint32
	LoanMax          effects.Duration
	AddressesOnly    bool // senders say where they take words by address, not by name
	Delay            bool // offers are read when the engine fetches, not when they come
	OffersMax        uint32
	PlacesMax        uint32
	Pipeline         pipeline.Config
	BackoffMin       effects.Duration
	BackoffMax       effects.Duration
	PeersMax         uint32
	BatchMax         uint32
	WaitersMax       uint32
	WaitingBytes     uint64 // of requests and offers that wait
	GrantsMax        uint32
	GetsMax          uint32
	PagesMax         uint32 // of the pool
	Retention        store.Retention
	ClaimsMax        uint32 // beyond the first on each page
	EntriesMax       uint32
	OvertakesMax     uint32
	Wire             protocol.Limits
}

// Receiver is the receiving side of a rank: two targets, and the rooms that they stand on.
type Receiver struct {
	rooms
	push pushTarget
	pull pullTarget
}

// New returns the room. seed is a secret of this rank.
func New(cfg Config, classes int, seed uint64) Receiver {
	return Receiver{rooms: newRooms(cfg, classes, seed), pull: newPullTarget(cfg, classes, seed)}
}

// OnAlloc handles a message on the alloc channel. Every one is answered, at once
// or when there is memory.
func (r *Receiver) OnAlloc(v *env.Env, l *link.Links, ev *effects.Received) {
	switch {
	case ev.Request == 0:
	case protocol.HasTag(ev.Body, protocol.TagPullReadyNotif, &r.cfg.Wire):
		r.pull.onOffer(v, &r.rooms, l, ev)
	default:
		r.push.onAlloc(v, &r.rooms, l, ev)
	}
}

// refuseWaiting answers who waits that it waits in vain.
func (r *Receiver) refuseWaiting(v *env.Env, h table.Handle, code effects.Code, why *effects.Why) {
	if r.pending.Get(h).Offer {
		r.pull.refuseWaiting(v, &r.rooms, h, code, why)
		return
	}
	r.push.refuseWaiting(v, &r.rooms, h, code, why)
}

// Admit serves who waits for pages, until nobody whose turn comes can be. It is called when pages became free. In a
// rank of both sides own are the reservations of our engine, the first of which stands in the same line.
func (r *Receiver) Admit(v *env.Env, l *link.Links, own *engine.Engine) {
	r.pending.NoteOwn(own.First())
	for idle := 0; idle < r.pending.Classes() && r.pending.Waits(); idle++ {
		h, ours := r.pending.Next(v)
		if ours && r.admitOwn(v, own) {
			idle = -1
		}
		if h == 0 {
			continue
		}
		if how, lacks := r.try(v, l, r.pending.Get(h)); r.pending.Tried(v, h, how, lacks) {
			idle = -1 // All others may go on again.
		}
	}
}

// admitOwn gives our engine's oldest reservation its pages, if it can have them now.
func (r *Receiver) admitOwn(v *env.Env, own *engine.Engine) bool {
	_, n := own.First()
	if !v.Pools.FitsShare(v.Pool, pending.Own, n) || !r.Store.MakeRoom(v, v.Pool, n, 0) {
		return false
	}
	own.AdmitFirst(v)
	r.pending.NoteOwn(own.First())
	r.pending.PassedByOwn(v)
	return true
}

// try serves a request whose turn it is, if it can be now.
func (r *Receiver) try(v *env.Env, l *link.Links, q *pending.Row) (pending.Tried, pending.Shortfall) {
	over := effects.Link(0)
	if q.Offer {
		if over = l.Reach(v, q.Class); over == 0 {
			return pending.Unlinked, q.Lacks
		}
	}
	if !r.landings.Room(v, &r.Store, int(q.Keys)) ||
		q.Lacks.Stands(v, q.Class, r.Store.Readied(), r.Store.Spare()) {
		return pending.Short, q.Lacks
	}
	var lacks pending.Shortfall
	var done bool
	if q.Offer {
		lacks, done = r.pull.try(v, &r.rooms, l, over, q)
	} else {
		lacks, done = r.push.try(v, &r.rooms, q)
	}
	if done {
		return pending.Served, lacks
	}
	return pending.Short, lacks
}

// AdmitFetches lets fetches that are short of staging pages have what became free.
func (r *Receiver) AdmitFetches(v *env.Env) {
	r.fetches.Admit(v, &r.Store, &r.deferred)
	r.pull.tellEnded(v, &r.rooms)
}

// StartFetches looks again at the fetches that wait, when something came that they may wait for.
func (r *Receiver) StartFetches(v *env.Env, l *link.Links) {
	s := &r.Store
	s.HeardLost() // By the Gets.
	if !r.deferred.Stirred() {
		return
	}
	for h := r.fetches.FirstWaiting(); h != 0; {
		next := r.fetches.NextWaiting(h)
		r.fetches.Start(v, s, &r.deferred, l, h)
		r.pull.tellEnded(v, &r.rooms)
		h = next
	}
	r.gets.GiveUp(v, s, &r.pending) // What fetches took with them.
	s.HeardLost()
}
