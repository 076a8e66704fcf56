// Package receiver is the receiving side of a rank, and decides nothing by itself: the two targets (fsm/pd/push and
// fsm/pd/pull) over the rooms that they share (flow.Rooms), sweeps over those in the order of their tables, and in
// which order who waits goes on. It may be relied on for this: what a room says that it lost, ended or freed is told in
// the same call, and not later.
package receiver

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/flow"
	"github.com/kvferry/kvferry/fsm/link"
	"github.com/kvferry/kvferry/fsm/pd/pull"
	"github.com/kvferry/kvferry/fsm/pd/push"
	"github.com/kvferry/kvferry/fsm/pending"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// Receiver is the receiving side of a rank: two targets, and the rooms that they stand on.
type Receiver struct {
	flow.Rooms
	push push.Target
	pull pull.Target
}

// New returns the room. seed is a secret of this rank.
func New(cfg flow.RoomsConfig, classes int, seed uint64) Receiver {
	return Receiver{Rooms: flow.NewRooms(cfg, classes, seed), pull: pull.NewTarget(cfg, classes, seed)}
}

// OnAlloc handles a message on the alloc channel. Every one is answered, at once
// or when there is memory.
func (r *Receiver) OnAlloc(v *env.Env, l *link.Links, ev *effects.Received) {
	switch {
	case ev.Request == 0:
	case protocol.HasTag(ev.Body, protocol.TagPullReadyNotif, &r.Cfg.Wire):
		r.pull.OnOffer(v, &r.Rooms, l, ev)
	default:
		r.push.OnAlloc(v, &r.Rooms, l, ev)
	}
}

// refuseWaiting answers who waits that it waits in vain.
func (r *Receiver) refuseWaiting(v *env.Env, h table.Handle, code effects.Code, why *effects.Why) {
	if r.Pending.Get(h).Offer {
		r.pull.RefuseWaiting(v, &r.Rooms, h, code, why)
		return
	}
	r.push.RefuseWaiting(v, &r.Rooms, h, code, why)
}

// Admit serves who waits for pages, until nobody whose turn comes can be. It is called when pages became free. In a
// rank of both sides own are the reservations of our engine, the first of which stands in the same line.
func (r *Receiver) Admit(v *env.Env, l *link.Links, own *engine.Engine) {
	r.Pending.NoteOwn(own.First())
	for idle := 0; idle < r.Pending.Classes() && r.Pending.Waits(); idle++ {
		h, ours := r.Pending.Next(v)
		if ours && r.admitOwn(v, own) {
			idle = -1
		}
		if h == 0 {
			continue
		}
		if how, lacks := r.try(v, l, r.Pending.Get(h)); r.Pending.Tried(v, h, how, lacks) {
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
	r.Pending.NoteOwn(own.First())
	r.Pending.PassedByOwn(v)
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
	if !r.Landings.Room(v, &r.Store, int(q.Keys)) ||
		q.Lacks.Stands(v, q.Class, r.Store.Readied(), r.Store.Spare()) {
		return pending.Short, q.Lacks
	}
	var lacks pending.Shortfall
	var done bool
	if q.Offer {
		lacks, done = r.pull.Try(v, &r.Rooms, l, over, q)
	} else {
		lacks, done = r.push.Try(v, &r.Rooms, q)
	}
	if done {
		return pending.Served, lacks
	}
	return pending.Short, lacks
}

// AdmitFetches lets fetches that are short of staging pages have what became free.
func (r *Receiver) AdmitFetches(v *env.Env) {
	r.Fetches.Admit(v, &r.Store, &r.Deferred)
	r.pull.TellEnded(v, &r.Rooms)
}

// StartFetches looks again at the fetches that wait, when something came that they may wait for.
func (r *Receiver) StartFetches(v *env.Env, l *link.Links) {
	s := &r.Store
	s.HeardLost() // By the Gets.
	if !r.Deferred.Stirred() {
		return
	}
	for h := r.Fetches.FirstWaiting(); h != 0; {
		next := r.Fetches.NextWaiting(h)
		r.Fetches.Start(v, s, &r.Deferred, l, h)
		r.pull.TellEnded(v, &r.Rooms)
		h = next
	}
	r.Gets.GiveUp(v, s, &r.Pending) // What fetches took with them.
	s.HeardLost()
}
