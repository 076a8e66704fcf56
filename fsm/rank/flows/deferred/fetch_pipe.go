package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
)

// The methods in this file pass events to the pipeline and apply its reports.

// Pipeline returns the pipeline that stages fetches, for inspection only.
func (x *Fetches) Pipeline() *staging.Pipeline { return &x.pipe }

// Admit gives free staging pages to the fetches that are short of them.
func (x *Fetches) Admit(v *env.Env, s *store.Store, d *Deferred) {
	x.stage(v, s)
	x.pipe.Admit(v, d)
	x.settle(v, s, d)
}

// stage makes the store's cache evict chunks for the staging pages that fetches lack, as far as it can: no more
// pages than can be given to the fetches in this step.
func (x *Fetches) stage(v *env.Env, s *store.Store) {
	p := v.StagedIn()
	if lacks := min(x.pipe.Lacks(), v.Work.Rows()); lacks > p.Free() && s.Spare(p) > 0 {
		s.MakeRoom(v, p, min(lacks, p.Free()+s.Spare(p)), 0)
	}
}

// Fetched handles the end of one of the pipeline's reads.
func (x *Fetches) Fetched(
	v *env.Env, s *store.Store, d *Deferred, l *link.Links, ref kernel.Ref, ev *effects.TransferDone,
) {
	lost := effects.Link(0)
	if ev.Code == effects.PeerLost || ev.Code == effects.Stale {
		from := x.pipe.Source(ref)
		lost = from.Link
		if o := d.get(from.ID); o.Asked.Of == 0 {
			l.Unreach(v, lost)
		} else if now, _ := l.Of(o.Asked.Of).Link(); now == lost {
			l.Fail(v, o.Asked.Of, ev.Code, effects.Why{Stage: effects.StageTransfer, Field: "data plane", Theirs: "gone"})
		}
	}
	x.pipe.OnTransferDone(v, d, ref, ev)
	if lost != 0 {
		x.pipe.OnLinkLost(v, lost) // The link is dropped: no other read can use it either.
	}
	x.settle(v, s, d)
}

// Settled handles the notification, after an unsettled read, that the read touches nothing any more.
func (x *Fetches) Settled(v *env.Env, s *store.Store, d *Deferred, ref kernel.Ref) {
	x.pipe.OnSettled(v, ref)
	x.settle(v, s, d)
}

// Scattered handles the end of a scatter.
func (x *Fetches) Scattered(v *env.Env, s *store.Store, d *Deferred, ref kernel.Ref, ev *effects.Scattered) {
	x.pipe.OnScattered(v, d, ref, ev)
	x.settle(v, s, d)
}

// PipeDue handles the deadlines of the pipeline.
func (x *Fetches) PipeDue(v *env.Env, s *store.Store, d *Deferred, ref kernel.Ref) {
	x.pipe.OnTimer(v, ref)
	x.settle(v, s, d)
}

// LinkLost handles the loss of a link: reads over the link fail.
func (x *Fetches) LinkLost(v *env.Env, s *store.Store, d *Deferred, lost effects.Link) {
	x.pipe.OnLinkLost(v, lost)
	x.settle(v, s, d)
}

// EndLost continues to end the fetches that have lost their link.
func (x *Fetches) EndLost(v *env.Env, s *store.Store, d *Deferred) {
	x.pipe.EndLost(v)
	x.settle(v, s, d)
}
