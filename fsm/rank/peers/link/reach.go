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

// Reached is the outcome of an attempt to reach the inbound peer of a class.
type Reached struct {
	Class int
	Code  effects.Code
	Why   effects.Why // explanation, if Code is not OK
}

// reaches is a queue of the outcomes of such attempts.
type reaches struct{ list []Reached }

// NextReached removes and returns the oldest outcome of an attempt to reach an inbound peer. It reports false if there
// is none.
func (l *Links) NextReached() (Reached, bool) {
	all := &l.in.reached.list
	if len(*all) == 0 {
		return Reached{}, false
	}
	first := (*all)[0]
	*all = append((*all)[:0], (*all)[1:]...)
	return first, true
}

// reaching bundles one inbound peer with the environment of the present step. It is valid for one call.
type reaching struct {
	hearing
	h table.Handle
	x *Incarnation
}

func (i hearing) reaching(h table.Handle) reaching {
	return reaching{hearing: i, h: h, x: i.rows.get(h)}
}

// Reach returns the link to the inbound peer of a class. If there is none, Reach returns zero and starts to make a
// link; NextReached reports the outcome.
func (l *Links) Reach(v *env.Env, class int) effects.Link {
	r := l.hearing(v).reaching(l.rows.ofClass(class))
	k := &r.x.link
	switch k.state {
	case linked:
		return k.id
	case linking:
		return 0
	case unlinked:
	}
	k.begin()
	if k.owed {
		return 0 // A former attempt is still in flight. Its completion starts this one.
	}
	r.next()
	return 0
}

// next requests the import of the next plane, or fails the attempt if no plane is left.
func (r *reaching) next() {
	k := &r.x.link
	if !k.left() {
		k.state = unlinked
		r.end(effects.Unreachable, r.cfg.noPlane(k.tried, nil))
		return
	}
	k.attempt++
	k.owed = true
	corr := r.v.Corrs.Open(kernel.Ref{Owner: kernel.OwnerLink, Kind: kindReach, Attempt: k.attempt, Subject: r.h})
	k.try(r.v, corr, r.cfg.PlaneNames, r.x.who, r.x.us)
}

// end queues the outcome of the attempt for the receiver.
func (r *reaching) end(code effects.Code, why effects.Why) {
	why.Stage = effects.StagePlane
	r.in.reached.list = append(r.in.reached.list, Reached{classOf(r.h), code, why})
}

// ended handles the completion of an import. An inbound peer is not replaced while an import is outstanding.
func (r *reaching) ended(ref kernel.Ref, ev *effects.Imported) {
	k, v := &r.x.link, r.v
	k.owed = false
	if k.attempt != ref.Attempt || k.state != linking {
		v.Out.Mark(Marks.StaleCompletion)
		if ev.Code == effects.OK {
			v.Out.Drop(ev.Link)
		}
		if k.state == linking {
			r.next()
		}
		return
	}
	if ev.Code == effects.OK {
		r.rows.made(r.h, ev.Link)
		r.end(effects.OK, effects.Why{})
		return
	}
	if ev.Code == effects.Stale {
		k.state = unlinked
		r.end(ev.Code, effects.Why{Field: "life", Theirs: "another one than that which offered"})
		return
	}
	v.Out.Mark(Marks.PlaneFailed)
	k.failed(r.cfg.PlaneNames, ev.Code)
	r.next()
}

// LostWay reports, once, whether a link to pages was dropped for any reason. An offer that waits may then have lost the
// link to its pages.
func (l *Links) LostWay() bool {
	was := l.rows.lost
	l.rows.lost = false
	return was
}

// Unreach gives up a link to an inbound peer, if the link is still in use, because a read has shown that the link does
// not work.
func (l *Links) Unreach(v *env.Env, link effects.Link) {
	if i := l.hearing(v); i.behind(link) != 0 {
		i.unreach(i.behind(link))
	}
}

// unreach drops the link to an inbound peer and makes an outstanding attempt stale.
func (i *hearing) unreach(h table.Handle) {
	i.rows.get(h).link.attempt++ // The completion of an outstanding import becomes stale.
	i.rows.drop(i.v, h)
}

// OnReachLost handles the end of a link to an inbound peer. It returns the peer's class, or 0 if the link leads to no
// inbound peer.
func (l *Links) OnReachLost(v *env.Env, link effects.Link) (class int) {
	i := l.hearing(v)
	h := i.behind(link)
	if h == 0 {
		return 0
	}
	v.Out.Mark(Marks.LinkLost)
	i.unreach(h)
	return classOf(h)
}

// behind returns the inbound peer that a link leads to, or zero.
func (i *hearing) behind(link effects.Link) table.Handle {
	h := i.rows.behind(link)
	if h != 0 && !i.rows.get(h).inbound() {
		return 0
	}
	return h
}

// listed records the buffers, the clock stamps and the planes that an inbound peer stated. A peer that is linked stays
// linked, because its incarnation is the same.
func (g *Incarnation) listed(v *env.Env, cfg *Config, m *protocol.HixlMemInfoRequest) {
	g.gone = false // The new link is in use: the end of the former link was reported after this peer's hello.
	if m.HasExt {
		g.anchor.add(v.Now, m.Stamps, cfg.DriftPPM)
	}
	g.buffers = g.buffers[:0]
	for i := range m.Buffers {
		if b := &m.Buffers[i]; b.PageSize == cfg.PageBytes && cfg.PageBytes > 0 {
			g.buffers = append(g.buffers, effects.Buffer{
				ID: effects.BufferID(b.UUID), Pages: uint32(min(b.Size/b.PageSize, 1<<32-1)), PageBytes: b.PageSize,
			})
		}
	}
	if g.link.state == unlinked {
		g.link.learn(cfg.PlaneNames, m.Planes, m.Blobs)
	}
}

// Shorter returns the shortest time that a span on another node's clock can take on this node's clock, if the clocks
// drift apart by at most driftPPM millionths.
func Shorter(d effects.Duration, driftPPM uint32) effects.Duration {
	return d - effects.Duration(drifted(int64(d), driftPPM))
}

// CompareClocks takes over the clock stamps of an inbound peer's message that names no instant. Every message that
// echoes a stamp of this node may prove more about the peer's clock, whatever the message is about.
func (l *Links) CompareClocks(v *env.Env, class int, s protocol.Stamps) {
	l.OfClass(class).anchor.add(v.Now, s, l.cfg.DriftPPM)
}

// Anchor takes over the clock stamps of an inbound peer's message and converts an instant on the peer's clock to the
// earliest possible time on this node's clock (rule M4). The result is never later than now, whatever the peer states.
// Anchor reports false if no anchor relates the two clocks.
func (l *Links) Anchor(v *env.Env, class int, s protocol.Stamps, instant int64) (effects.Time, bool) {
	a := &l.OfClass(class).anchor
	a.add(v.Now, s, l.cfg.DriftPPM)
	return min(a.earliest(instant, l.cfg.DriftPPM), v.Now), *a != anchor{}
}
