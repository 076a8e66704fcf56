package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
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

// Reach returns the link to the inbound peer of a class, or zero and begins to make one: how that ended is
// told by NextReached.
func (l *Links) Reach(v *env.Env, class int) effects.Link {
	g := l.OfClass(class)
	switch g.link.state {
	case linked:
		return g.link.id
	case linking:
		return 0
	case unlinked:
	}
	g.link.begin()
	if g.link.owed {
		return 0 // A former attempt has not ended; its completion begins this one.
	}
	l.reachNext(v, class, g)
	return 0
}

func (l *Links) reachNext(v *env.Env, class int, g *Incarnation) {
	k := &g.link
	if !k.left() {
		k.state = unlinked
		l.endReach(class, effects.Unreachable, l.noPlane(k.tried, nil))
		return
	}
	k.attempt++
	k.owed = true
	corr := v.Corrs.Open(kernel.Ref{
		Owner: kernel.OwnerLink, Kind: kindReach, Attempt: k.attempt, Subject: l.rows.At(int32(class) - 1),
	})
	k.try(v, corr, l.cfg.PlaneNames, g.who, g.us)
}

func (l *Links) endReach(class int, code effects.Code, why effects.Why) {
	why.Stage = effects.StagePlane
	l.reached = append(l.reached, Reached{class, code, why})
}

func (l *Links) onReached(v *env.Env, ref kernel.Ref, ev *effects.Imported) {
	g, class := l.rows.Get(ref.Subject), int(ref.Subject.Slot())+1
	k := &g.link // An inbound peer stays while a completion is outstanding.
	k.owed = false
	if k.attempt != ref.Attempt || k.state != linking {
		v.Out.Mark(MarkStaleCompletion)
		if ev.Code == effects.OK {
			v.Out.Drop(ev.Link)
		}
		if k.state == linking {
			l.reachNext(v, class, g)
		}
		return
	}
	if ev.Code == effects.OK {
		l.made(ref.Subject, ev.Link)
		l.endReach(class, effects.OK, effects.Why{})
		return
	}
	if ev.Code == effects.Stale {
		k.state = unlinked
		l.endReach(class, ev.Code, effects.Why{Field: "life", Theirs: "another one than that which offered"})
		return
	}
	v.Out.Mark(MarkPlaneFailed)
	k.failed(l.cfg.PlaneNames, ev.Code)
	l.reachNext(v, class, g)
}

// NextReached takes how one attempt to reach an inbound peer ended.
func (l *Links) NextReached() (Reached, bool) {
	if len(l.reached) == 0 {
		return Reached{}, false
	}
	first := l.reached[0]
	l.reached = append(l.reached[:0], l.reached[1:]...)
	return first, true
}

// Unreach gives up a link to an inbound peer, if it is still there: a read has shown that it is of no use.
func (l *Links) Unreach(v *env.Env, link effects.Link) {
	if h := l.inboundBehind(link); h != 0 {
		l.unreach(v, h)
	}
}

func (l *Links) unreach(v *env.Env, h table.Handle) {
	l.rows.Get(h).link.attempt++ // The completion of an import that is outstanding is stale.
	l.drop(v, h)
}

// OnReachLost handles the end of a link to an inbound peer, and says which class that is; 0 if it is none.
func (l *Links) OnReachLost(v *env.Env, link effects.Link) (class int) {
	h := l.inboundBehind(link)
	if h == 0 {
		return 0
	}
	v.Out.Mark(MarkLinkLost)
	l.unreach(v, h)
	return int(h.Slot()) + 1
}

func (l *Links) inboundBehind(link effects.Link) table.Handle {
	h := l.behind(link)
	if h != 0 && !l.rows.Get(h).inbound() {
		return 0
	}
	return h
}

// listedInbound notes what an inbound peer told of itself: its buffers, the anchor that its stamps make, and its
// planes. One that is linked stays so: its life is the same.
func (l *Links) listedInbound(v *env.Env, g *Incarnation) {
	m := &l.mem
	if m.HasExt {
		g.anchor.add(v.Now, m.Stamps, l.cfg.DriftPPM)
	}
	g.buffers = g.buffers[:0]
	for i := range m.Buffers {
		if b := &m.Buffers[i]; b.PageSize == l.cfg.PageBytes && l.cfg.PageBytes > 0 {
			g.buffers = append(g.buffers, effects.Buffer{
				ID: effects.BufferID(b.UUID), Pages: uint32(min(b.Size/b.PageSize, 1<<32-1)), PageBytes: b.PageSize,
			})
		}
	}
	if g.link.state == unlinked {
		g.link.learn(l.cfg.PlaneNames, m.Planes, m.Blobs)
	}
}

// Anchor notes the stamps of an inbound peer's message and says when, at the earliest, an instant that it names by its
// clock was on ours; false if nothing ties the clocks together. It was not after now, whatever the inbound peer says.
func (l *Links) Anchor(v *env.Env, class int, s protocol.Stamps, instant int64) (effects.Time, bool) {
	a := &l.OfClass(class).anchor
	a.add(v.Now, s, l.cfg.DriftPPM)
	return min(a.earliest(instant, l.cfg.DriftPPM), v.Now), *a != anchor{}
}
