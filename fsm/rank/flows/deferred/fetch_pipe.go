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

// GrantStaging gives free staging pages to the fetches that are short of them.
func (x *Fetches) GrantStaging(v *env.Env, s *store.Store, d *Offers) {
	x.makeStagingRoom(v, s)
	x.pipe.AdmitFetches(v, d)
	x.applyReports(v, s, d)
}

// makeStagingRoom makes the store's cache evict chunks for the staging pages that fetches lack, as far as it can: no
// more pages than can be given to the fetches in this step.
func (x *Fetches) makeStagingRoom(v *env.Env, s *store.Store) {
	p := v.StagingPool()
	if lacks := min(x.pipe.PagesLacking(), v.Work.RowsLeft()); lacks > p.FreePages() && s.EvictablePages(p) > 0 {
		s.MakeRoom(v, p, min(lacks, p.FreePages()+s.EvictablePages(p)), 0)
	}
}

// OnTransferDone handles the end of one of the pipeline's reads.
func (x *Fetches) OnTransferDone(
	v *env.Env, s *store.Store, d *Offers, l *link.Links, ref kernel.Ref, ev *effects.TransferDone,
) {
	lost := effects.Link(0)
	if ev.Code == effects.PeerLost || ev.Code == effects.Stale {
		from := x.pipe.SourceOf(ref)
		lost = from.Link
		if o := d.get(from.ID); o.Origin.Peer == 0 {
			l.DropInboundLink(v, lost)
		} else if now, _ := l.IncarnationOf(o.Origin.Peer).Link(); now == lost {
			l.FailPeer(v, o.Origin.Peer, ev.Code, effects.Why{Stage: effects.StageTransfer, Field: "data plane", Theirs: "gone"})
		}
	}
	x.pipe.OnTransferDone(v, d, ref, ev)
	if lost != 0 {
		x.pipe.OnLinkLost(v, lost) // The link is dropped: no other read can use it either.
	}
	x.applyReports(v, s, d)
}

// OnSettled handles the notification, after an unsettled read, that the read touches nothing any more.
func (x *Fetches) OnSettled(v *env.Env, s *store.Store, d *Offers, ref kernel.Ref) {
	x.pipe.OnSettled(v, ref)
	x.applyReports(v, s, d)
}

// OnScattered handles the end of a scatter.
func (x *Fetches) OnScattered(v *env.Env, s *store.Store, d *Offers, ref kernel.Ref, ev *effects.Scattered) {
	x.pipe.OnScattered(v, d, ref, ev)
	x.applyReports(v, s, d)
}

// OnPipelineTimer handles the deadlines of the pipeline.
func (x *Fetches) OnPipelineTimer(v *env.Env, s *store.Store, d *Offers, ref kernel.Ref) {
	x.pipe.OnTimer(v, ref)
	x.applyReports(v, s, d)
}

// OnLinkLost handles the loss of a link: reads over the link fail.
func (x *Fetches) OnLinkLost(v *env.Env, s *store.Store, d *Offers, lost effects.Link) {
	x.pipe.OnLinkLost(v, lost)
	x.applyReports(v, s, d)
}

// ContinueLossSweep continues to end the fetches that have lost their link.
func (x *Fetches) ContinueLossSweep(v *env.Env, s *store.Store, d *Offers) {
	x.pipe.ContinueLossSweep(v)
	x.applyReports(v, s, d)
}
