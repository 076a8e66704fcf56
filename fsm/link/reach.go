package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/kernel"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/protocol"
)

// A reach is how a receiver gets at the pages that a guest offers: a plane of the guest's, imported
// when the first offer comes. It costs the guest nothing until then.
type reach struct {
	state   reachState
	epoch   uint64 // attempts, of all that had this slot; the completion of a former one is stale
	owed    bool   // a completion is outstanding
	link    effects.Link
	plane   int // which of the common planes is being imported
	planes  []byte
	offers  []offer
	tried   string // planes that could not be connected in this attempt
	buffers []effects.Buffer
	anchor  anchor // zero: nothing ties the clocks together
}

type reachState uint8

const (
	unreached reachState = iota
	reaching
	reachable
)

// Reached says how an attempt to reach the guest of a class ended.
type Reached struct {
	Class int
	Code  effects.Code
	Why   effects.Why // where Code is not OK
}

func (r *reach) emptied() reach {
	return reach{epoch: r.epoch + 1, planes: r.planes[:0], offers: r.offers[:0], buffers: r.buffers[:0]}
}

// idle says that no completion would be lost with it.
func (r *reach) idle() bool { return !r.owed }

// learn takes what a guest says of its planes. One that is reached stays so: its life is the same.
func (l *Links) learn(r *reach, m *protocol.HixlMemInfoRequest) {
	if r.state == unreached {
		r.planes, r.offers = l.common(m.Planes, m.Blobs, r.planes[:0], r.offers[:0])
	}
}

// listed takes a guest's buffers, and the anchor that its stamps make.
func (r *reach) listed(now effects.Time, m *protocol.HixlMemInfoRequest, pageBytes uint64, driftPPM uint32) {
	if m.HasExt {
		r.anchor.add(now, m.Stamps, driftPPM)
	}
	r.buffers = r.buffers[:0]
	for i := range m.Buffers {
		if b := &m.Buffers[i]; b.PageSize == pageBytes && pageBytes > 0 {
			r.buffers = append(r.buffers, effects.Buffer{
				ID: effects.BufferID(b.UUID), Pages: uint32(min(b.Size/b.PageSize, 1<<32-1)), PageBytes: b.PageSize,
			})
		}
	}
}

// Reach returns the link to the guest of a class, or zero and begins to make one: how that ended is
// told by NextReached.
func (l *Links) Reach(v *env.Env, class int) effects.Link {
	g := l.guestOf(class)
	r := &g.reach
	switch r.state {
	case reachable:
		return r.link
	case reaching:
		return 0
	case unreached:
	}
	r.plane, r.state, r.tried = 0, reaching, ""
	if r.owed {
		return 0 // A former attempt has not ended; its completion begins this one.
	}
	l.reachNext(v, class, g)
	return 0
}

func (l *Links) reachNext(v *env.Env, class int, g *guest) {
	r := &g.reach
	if r.plane >= len(r.offers) {
		l.endReach(class, r, effects.Unreachable, l.noPlane(r.tried, nil))
		return
	}
	o := r.offers[r.plane]
	r.epoch++
	r.owed = true
	v.Out.Import(effects.Import{
		Corr: v.Corrs.Open(kernel.Ref{
			Owner: kernel.OwnerLink, Kind: kindReach, Attempt: r.epoch, Subject: l.guests.At(int32(class) - 1),
		}),
		Peer: g.incarnation, Us: g.us, Plane: string(l.cfg.PlaneNames[o.ours]), Blob: r.planes[o.from:o.to],
	})
}

func (l *Links) endReach(class int, r *reach, code effects.Code, why effects.Why) {
	why.Stage = effects.StagePlane
	r.state = unreached
	if code == effects.OK {
		r.state = reachable
	}
	l.reached = append(l.reached, Reached{class, code, why})
}

func (l *Links) onReached(v *env.Env, ref kernel.Ref, ev *effects.Imported) {
	g, class := l.guests.Get(ref.Subject), int(ref.Subject.Slot())+1
	r := &g.reach // A guest stays while a completion is outstanding.
	r.owed = false
	if r.epoch != ref.Attempt || r.state != reaching {
		v.Out.Mark(MarkStaleCompletion)
		if ev.Code == effects.OK {
			v.Out.Drop(ev.Link)
		}
		if r.state == reaching {
			l.reachNext(v, class, g)
		}
		return
	}
	if ev.Code == effects.OK || ev.Code == effects.Stale {
		r.link = ev.Link
		l.endReach(class, r, ev.Code, effects.Why{Field: "life", Theirs: "another one than that which offered"})
		return
	}
	v.Out.Mark(MarkPlaneFailed)
	r.tried = l.alsoTried(r.tried, r.offers[r.plane], ev.Code)
	r.plane++
	l.reachNext(v, class, g)
}

// NextReached takes how one attempt to reach a guest ended.
func (l *Links) NextReached() (Reached, bool) {
	if len(l.reached) == 0 {
		return Reached{}, false
	}
	first := l.reached[0]
	l.reached = append(l.reached[:0], l.reached[1:]...)
	return first, true
}

// Unreach gives up a link to a guest, if it is still there: a read has shown that it is of no use.
func (l *Links) Unreach(v *env.Env, link effects.Link) {
	if h := l.guestBehind(link); h != 0 {
		l.unreach(v, l.guests.Get(h))
	}
}

func (l *Links) unreach(v *env.Env, g *guest) {
	r := &g.reach
	if r.link != 0 {
		v.Out.Drop(r.link)
	}
	r.epoch++
	r.link, r.state = 0, unreached
}

// OnReachLost handles the end of a link to a guest, and says which class that is; 0 if it is none.
func (l *Links) OnReachLost(v *env.Env, link effects.Link) (class int) {
	h := l.guestBehind(link)
	if h == 0 {
		return 0
	}
	v.Out.Mark(MarkLinkLost)
	l.unreach(v, l.guests.Get(h))
	return int(h.Slot()) + 1
}

func (l *Links) guestBehind(link effects.Link) table.Handle {
	for slot := range l.guests.Slots() {
		if h := l.guests.At(slot); h != 0 && link != 0 && l.guests.Get(h).reach.link == link {
			return h
		}
	}
	return 0
}

// GuestListed says whether the guest of a class told its buffers. One whose words crossed those of a former connection
// may not have.
func (l *Links) GuestListed(class int) bool { return len(l.guestOf(class).reach.buffers) > 0 }

// GuestBuffer finds one of a guest's buffers.
func (l *Links) GuestBuffer(class int, id effects.BufferID) (effects.Buffer, bool) {
	for _, b := range l.guestOf(class).reach.buffers {
		if b.ID == id {
			return b, true
		}
	}
	return effects.Buffer{}, false
}

// Anchor notes the stamps of a guest's message and says when, at the earliest, an instant that it names
// by its clock was on ours; false if nothing ties the clocks together. It was not after now, whatever the guest says.
func (l *Links) Anchor(v *env.Env, class int, s protocol.Stamps, instant int64) (effects.Time, bool) {
	a := &l.guestOf(class).reach.anchor
	a.add(v.Now, s, l.cfg.DriftPPM)
	return min(a.earliest(instant, l.cfg.DriftPPM), v.Now), *a != anchor{}
}
