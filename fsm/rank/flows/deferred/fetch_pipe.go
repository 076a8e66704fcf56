package deferred

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/memory/staging"
	"github.com/kvferry/kvferry/fsm/rank/memory/store"
	"github.com/kvferry/kvferry/fsm/rank/peers/link"
)

// What the pipeline is told, and what it says of it.

// Pipeline is what stages fetches; to look at only.
func (x *Fetches) Pipeline() *staging.Pipeline { return &x.pipe }

// Admit lets fetches that are short of staging pages have what became free.
func (x *Fetches) Admit(v *env.Env, s *store.Store, d *Deferred) {
	x.stage(v, s)
	x.pipe.Admit(v, d)
	x.settle(v, s, d)
}

// stage has a cache give up what fetches lack of staging pages, or as much of it as there is: no more than is given to
// them in this step.
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
		x.pipe.OnLinkLost(v, lost) // It is dropped: nobody else can read over it either.
	}
	x.settle(v, s, d)
}

// Settled handles the late word that one of the pipeline's reads touches nothing any more.
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

// LinkLost handles the end of a link: what is read over it fails.
func (x *Fetches) LinkLost(v *env.Env, s *store.Store, d *Deferred, lost effects.Link) {
	x.pipe.OnLinkLost(v, lost)
	x.settle(v, s, d)
}

// EndLost goes on with what ends because its link is lost.
func (x *Fetches) EndLost(v *env.Env, s *store.Store, d *Deferred) {
	x.pipe.EndLost(v)
	x.settle(v, s, d)
}
