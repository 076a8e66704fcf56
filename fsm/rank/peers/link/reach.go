package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// This file handles how a receiver reaches the pages that an inbound peer offers: through a data plane of the inbound
// peer, which this node imports when the first offer arrives. Until then the inbound peer costs nothing.

// ReachOutcome is the outcome of an attempt to reach the inbound peer of a class.
type ReachOutcome struct {
	Class int
	Code  effects.Code
	Why   effects.Why // explanation, if Code is not OK
}

// reachOutcomes is a queue of the outcomes of such attempts.
type reachOutcomes struct{ list []ReachOutcome }

// NextReachOutcome removes and returns the oldest outcome of an attempt to reach an inbound peer. It reports false if
// there is none.
func (l *Links) NextReachOutcome() (ReachOutcome, bool) {
	queue := &l.in.outcomes.list
	if len(*queue) == 0 {
		return ReachOutcome{}, false
	}
	first := (*queue)[0]
	*queue = append((*queue)[:0], (*queue)[1:]...)
	return first, true
}

// reachView bundles one inbound peer with the environment of the present step. It is valid for one call.
type reachView struct {
	inboundView
	h table.Handle
	x *Incarnation
}

func (i inboundView) viewReach(h table.Handle) reachView {
	return reachView{inboundView: i, h: h, x: i.rows.get(h)}
}

// ReachPeer returns the link to the inbound peer of a class. If there is none, ReachPeer returns zero and starts to
// make a link; NextReachOutcome reports the outcome.
func (l *Links) ReachPeer(v *env.Env, class int) effects.Link {
	r := l.viewInbound(v).viewReach(l.rows.rowOfClass(class))
	k := &r.x.link
	switch k.state {
	case linkUp:
		return k.id
	case linkImporting:
		return 0
	case linkDown:
	}
	k.startAttempt()
	if k.importPending {
		return 0 // A former attempt is still in flight. Its completion starts this one.
	}
	r.importNextPlane()
	return 0
}

// importNextPlane requests the import of the next plane, or fails the attempt if no plane is left.
func (r *reachView) importNextPlane() {
	k := &r.x.link
	if !k.hasNextPlane() {
		k.state = linkDown
		r.queueOutcome(effects.Unreachable, r.cfg.noPlaneReason(k.failedPlanes, nil))
		return
	}
	k.attempt++
	k.importPending = true
	corr := r.v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerLink, Kind: kindReach, Attempt: k.attempt, Subject: r.h})
	k.importPlane(r.v, corr, r.cfg.PlaneNames, r.x.peerID, r.x.selfID)
}

// queueOutcome queues the outcome of the attempt for the receiver.
func (r *reachView) queueOutcome(code effects.Code, why effects.Why) {
	why.Stage = effects.StagePlane
	r.in.outcomes.list = append(r.in.outcomes.list, ReachOutcome{classOf(r.h), code, why})
}

// onImported handles the completion of an import. An inbound peer is not replaced while an import is outstanding.
func (r *reachView) onImported(ref kernel.Ref, ev *effects.Imported) {
	k, v := &r.x.link, r.v
	k.importPending = false
	if k.attempt != ref.Attempt || k.state != linkImporting {
		v.Out.Mark(Marks.StaleCompletion)
		if ev.Code == effects.OK {
			v.Out.Drop(ev.Link)
		}
		if k.state == linkImporting {
			r.importNextPlane()
		}
		return
	}
	if ev.Code == effects.OK {
		r.rows.setLink(r.h, ev.Link)
		r.queueOutcome(effects.OK, effects.Why{})
		return
	}
	if ev.Code == effects.Stale {
		k.state = linkDown
		r.queueOutcome(ev.Code, effects.Why{Field: "incarnation", Theirs: "different from that of the offer"})
		return
	}
	v.Out.Mark(Marks.PlaneFailed)
	k.failPlane(r.cfg.PlaneNames, ev.Code)
	r.importNextPlane()
}

// TakeLinkDropped reports, once, whether a link to pages was dropped for any reason. An offer that waits may then have
// lost the link to its pages.
func (l *Links) TakeLinkDropped() bool {
	dropped := l.rows.linkDropped
	l.rows.linkDropped = false
	return dropped
}

// DropInboundLink gives up a link to an inbound peer, if the link is still in use, because a read has shown that the
// link does not work.
func (l *Links) DropInboundLink(v *env.Env, link effects.Link) {
	if i := l.viewInbound(v); i.inboundByLink(link) != 0 {
		i.dropLink(i.inboundByLink(link))
	}
}

// dropLink drops the link to an inbound peer and makes an outstanding attempt stale.
func (i *inboundView) dropLink(h table.Handle) {
	i.rows.get(h).link.attempt++ // The completion of an outstanding import becomes stale.
	i.rows.dropLink(i.v, h)
}

// OnReachLost handles the end of a link to an inbound peer. It returns the peer's class, or 0 if the link leads to no
// inbound peer.
func (l *Links) OnReachLost(v *env.Env, link effects.Link) (class int) {
	i := l.viewInbound(v)
	h := i.inboundByLink(link)
	if h == 0 {
		return 0
	}
	v.Out.Mark(Marks.LinkLost)
	i.dropLink(h)
	return classOf(h)
}

// inboundByLink returns the inbound peer that a link leads to, or zero.
func (i *inboundView) inboundByLink(link effects.Link) table.Handle {
	h := i.rows.rowByLink(link)
	if h != 0 && !i.rows.get(h).isInbound() {
		return 0
	}
	return h
}

// recordBuffers records the buffers, the clock stamps and the planes that an inbound peer stated. A peer that is linked
// stays linked, because its incarnation is the same.
func (g *Incarnation) recordBuffers(v *env.Env, cfg *Config, m *protocol.HixlMemInfoRequest) {
	g.linkLost = false // The new link is in use: the end of the former link was reported after this peer's hello.
	if m.HasExt {
		g.anchor.addStamps(v.Now, m.Stamps, cfg.DriftPPM)
	}
	g.buffers = g.buffers[:0]
	for i := range m.Buffers {
		if b := &m.Buffers[i]; b.PageSize == cfg.PageBytes && cfg.PageBytes > 0 {
			g.buffers = append(g.buffers, effects.Buffer{
				ID: effects.BufferID(b.UUID), Pages: uint32(min(b.Size/b.PageSize, 1<<32-1)), PageBytes: b.PageSize,
			})
		}
	}
	if g.link.state == linkDown {
		g.link.setCommonPlanes(cfg.PlaneNames, m.Planes, m.Blobs)
	}
}

// ShortestSpan returns the shortest time that a span on another node's clock can take on this node's clock, if the
// clocks drift apart by at most driftPPM millionths.
func ShortestSpan(d effects.Duration, driftPPM uint32) effects.Duration {
	return d - effects.Duration(driftBound(int64(d), driftPPM))
}

// CompareClocks takes over the clock stamps of an inbound peer's message that names no instant. Every message that
// echoes a stamp of this node may prove more about the peer's clock, whatever the message is about.
func (l *Links) CompareClocks(v *env.Env, class int, s protocol.Stamps) {
	l.IncarnationByClass(class).anchor.addStamps(v.Now, s, l.cfg.DriftPPM)
}

// ConvertInstant takes over the clock stamps of an inbound peer's message and converts an instant on the peer's clock
// to the earliest possible time on this node's clock (rule M4). The result is never later than now, whatever the peer
// states. ConvertInstant reports false if no anchor relates the two clocks.
func (l *Links) ConvertInstant(v *env.Env, class int, s protocol.Stamps, instant int64) (effects.Time, bool) {
	a := &l.IncarnationByClass(class).anchor
	a.addStamps(v.Now, s, l.cfg.DriftPPM)
	return min(a.earliestTime(instant, l.cfg.DriftPPM), v.Now), *a != anchor{}
}
