package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/identity"
)

// A guest is an incarnation that shook hands with us: the receiver's side of a link.

// Guest says which class the peer has who shook hands as who and was told that we are us; nobody else has one.
func (l *Links) Guest(v *env.Env, who, us effects.Incarnation) (class int, ok bool) {
	h := l.findGuest(who)
	if h == 0 || !identity.Same(l.rows.Get(h).us, us) {
		return 0, false
	}
	l.rows.Get(h).spoke = true
	l.see(v, h)
	return classOf(h), true
}

// see notes that a guest is here, and that others were not heard of for long: pages are no more kept for those.
func (l *Links) see(v *env.Env, h table.Handle) {
	l.rows.Get(h).seen = v.Now
	if l.rows.Listed(h) {
		l.rows.Unlink(&l.present, h)
	}
	l.rows.PushBack(&l.present, h)
	v.Pools.Present(classOf(h))
	for h := l.present.Front(); l.rows.Get(h).seen.Add(l.cfg.GuestTTL) < v.Now; h = l.present.Front() {
		l.miss(v, h)
	}
}

// miss notes that a guest is not here.
func (l *Links) miss(v *env.Env, h table.Handle) {
	if l.rows.Listed(h) {
		l.rows.Unlink(&l.present, h)
		v.Pools.Absent(classOf(h))
	}
}

// OnGuestLost handles the data plane's word that a peer is gone.
func (l *Links) OnGuestLost(v *env.Env, who effects.Incarnation) {
	if h := l.findGuest(who); h != 0 {
		l.miss(v, h)
	}
}

// spokeFor is how much longer a guest keeps its place once it has spoken. Anybody can say hello in one name after the
// other, without hearing what it is told: such guests make room for one another first, and for who has business here
// last. It is bounded, so that former lives of peers make room for present ones that have said hello only.
const spokeFor = 60 * effects.Second

// stays says until when, compared with others, a guest keeps its place.
func (g *Incarnation) stays() effects.Time {
	if g.spoke {
		return g.seen.Add(spokeFor)
	}
	return g.seen
}

// Guests is the number of guests known.
func (l *Links) Guests() int { return int(l.inbound) }

func (l *Links) findGuest(who effects.Incarnation) table.Handle {
	for p := l.byGuest.Seek(table.Hash(l.seed, who[:])); p.Found(); p = l.byGuest.Next(p) {
		if l.rows.Get(p.Handle()).who == who {
			return p.Handle()
		}
	}
	return 0
}

// admit makes room for a guest: the one unseen for longest goes (stays), if it has no pages
// here and nothing is kept for it; two guests in one class would wait for each other.
func (l *Links) admit(who effects.Incarnation, v *env.Env, busy []uint32) table.Handle {
	if h := l.findGuest(who); h != 0 {
		l.see(v, h)
		return h
	}
	if l.inbound >= l.cfg.PeersMax {
		var oldest table.Handle
		for slot := range l.rows.Slots() {
			h := l.rows.At(slot)
			if h == 0 || !l.rows.Get(h).inbound() || oldest != 0 && l.rows.Get(h).stays() >= l.rows.Get(oldest).stays() {
				continue
			}
			class := int(slot) + 1
			if v.Pools.ClassUse(class) == 0 && busy[class] == 0 && !l.rows.Get(h).link.owed {
				oldest = h
			}
		}
		if oldest == 0 {
			return 0
		}
		was := l.rows.Get(oldest).who
		l.unreach(v, oldest)
		l.miss(v, oldest)
		v.Pools.Disown(classOf(oldest))
		l.left = classOf(oldest)
		l.byGuest.Remove(table.Hash(l.seed, was[:]), oldest)
		l.exit(oldest)
	}
	h := l.enter(who, l.cfg.Key.For(who), 0)
	l.see(v, h)
	l.byGuest.Add(table.Hash(l.seed, who[:]), h)
	return h
}

// Left says, once, which class the last hello took from its guest for another one; 0 if none.
func (l *Links) Left() (class int) {
	class, l.left = l.left, 0
	return class
}

// met notes what a hello found: on which connection it was said, what the guest calls itself, and what it can.
func (g *Incarnation) met(conn effects.Conn, name []byte, caps uint64) {
	g.conn, g.caps = conn, caps
	if g.name != string(name) {
		g.name = effects.Words(name)
	}
}

// guestOn is the guest that said hello on a connection.
func (l *Links) guestOn(conn effects.Conn) *Incarnation {
	for slot := range l.rows.Slots() {
		if h := l.rows.At(slot); h != 0 && conn != 0 && l.rows.Get(h).conn == conn {
			return l.rows.Get(h)
		}
	}
	return nil
}
