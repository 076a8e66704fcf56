package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// How a receiver gets at the pages that an inbound peer offers: a plane of the inbound peer's, imported when the first
// offer comes. It costs the inbound peer nothing until then.

// Reached says how an attempt to reach the inbound peer of a class ended.
type Reached struct {
	Class int
	Code  effects.Code
	Why   effects.Why // where Code is not OK
}

// reaches are the ends of such attempts, in their order.
type reaches struct{ list []Reached }

// NextReached takes how one attempt to reach an inbound peer ended.
func (l *Links) NextReached() (Reached, bool) {
	all := &l.in.reached.list
	if len(*all) == 0 {
		return Reached{}, false
	}
	first := (*all)[0]
	*all = append((*all)[:0], (*all)[1:]...)
	return first, true
}

// A reaching is one inbound peer that we reach, for the time of one call.
type reaching struct {
	hearing
	h table.Handle
	x *Incarnation
}

func (i hearing) reaching(h table.Handle) reaching {
	return reaching{hearing: i, h: h, x: i.rows.get(h)}
}

// Reach returns the link to the inbound peer of a class, or zero and begins to make one: how that ended is
// told by NextReached.
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
		return 0 // A former attempt has not ended; its completion begins this one.
	}
	r.next()
	return 0
}

// next asks for the import of the next plane.
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

// end tells the receiver how it ended.
func (r *reaching) end(code effects.Code, why effects.Why) {
	why.Stage = effects.StagePlane
	r.in.reached.list = append(r.in.reached.list, Reached{classOf(r.h), code, why})
}

// ended handles the completion of an import. An inbound peer stays while one is outstanding.
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

// LostWay says, once, that a link to pages was given up, for whatever reason: an offer that waits may have lost the way
// to its pages.
func (l *Links) LostWay() bool {
	was := l.rows.lost
	l.rows.lost = false
	return was
}

// Unreach gives up a link to an inbound peer, if it is still there: a read has shown that it is of no use.
func (l *Links) Unreach(v *env.Env, link effects.Link) {
	if i := l.hearing(v); i.behind(link) != 0 {
		i.unreach(i.behind(link))
	}
}

func (i *hearing) unreach(h table.Handle) {
	i.rows.get(h).link.attempt++ // The completion of an import that is outstanding is stale.
	i.rows.drop(i.v, h)
}

// OnReachLost handles the end of a link to an inbound peer, and says which class that is; 0 if it is none.
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

// behind is the inbound peer that a link leads to, or zero.
func (i *hearing) behind(link effects.Link) table.Handle {
	h := i.rows.behind(link)
	if h != 0 && !i.rows.get(h).inbound() {
		return 0
	}
	return h
}

// listed notes what an inbound peer told of itself: its buffers, the anchor that its stamps make, and its planes. One
// that is linked stays so: its life is the same.
func (g *Incarnation) listed(v *env.Env, cfg *Config, m *protocol.HixlMemInfoRequest) {
	g.gone = false // Its new link stands: the end of the former one was told after its hello.
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

// Shorter is how long a span on another node's clock lasts on ours at the least, where they run apart by so many
// millionths at the most.
func Shorter(d effects.Duration, driftPPM uint32) effects.Duration {
	return d - effects.Duration(drifted(int64(d), driftPPM))
}

// CompareClocks notes the stamps of an inbound peer's message that names no instant. Each message that echoes a stamp
// of ours may prove more of the peer's clock than those before it, whatever it is about.
func (l *Links) CompareClocks(v *env.Env, class int, s protocol.Stamps) {
	l.OfClass(class).anchor.add(v.Now, s, l.cfg.DriftPPM)
}

// Anchor notes the stamps of an inbound peer's message and says when, at the earliest, an instant that it names by its
// clock was on ours; false if nothing ties the clocks together. It was not after now, whatever the inbound peer says.
func (l *Links) Anchor(v *env.Env, class int, s protocol.Stamps, instant int64) (effects.Time, bool) {
	a := &l.OfClass(class).anchor
	a.add(v.Now, s, l.cfg.DriftPPM)
	return min(a.earliest(instant, l.cfg.DriftPPM), v.Now), *a != anchor{}
}
