package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/identity"
)

// A guest is a peer that shook hands with us: the receiver's side of a link. Its
// class number is its place in the fairness tables; class 0 is nobody's, and behind the guests' come
// those of peers without our extensions.
//
// It is who knows the name that it has for us and the one that we have for it, each of which was told to the other
// only. Who says hello in another name is another guest, and learns another name of ours.
type guest struct {
	incarnation effects.Incarnation // its name for us
	us          effects.Incarnation // our name for it
	name        string              // what it calls itself, for people
	caps        uint64
	seen        effects.Time `snap:"skip"` // decides only when more peers come than there is room for
	spoke       bool         // in the name that it was told
	conn        effects.Conn // on which it said hello last
	link        Link         // to its pages, once it has offered some
	buffers     []effects.Buffer
	anchor      anchor // zero: nothing ties the clocks together
}

// Guest says which class the peer has who shook hands as who and was told that we are us; nobody else has one.
func (l *Links) Guest(v *env.Env, who, us effects.Incarnation) (class int, ok bool) {
	h := l.findGuest(who)
	if h == 0 || !identity.Same(l.guests.Get(h).us, us) {
		return 0, false
	}
	l.guests.Get(h).spoke = true
	l.see(v, h)
	return classOf(h), true
}

func classOf(h table.Handle) int { return int(h.Slot()) + 1 }

// see notes that a guest is here, and that others were not heard of for long: pages are no more kept for those.
func (l *Links) see(v *env.Env, h table.Handle) {
	l.guests.Get(h).seen = v.Now
	if l.guests.Listed(h) {
		l.guests.Unlink(&l.present, h)
	}
	l.guests.PushBack(&l.present, h)
	v.Pool.Present(classOf(h))
	for h := l.present.Front(); l.guests.Get(h).seen.Add(l.cfg.GuestTTL) < v.Now; h = l.present.Front() {
		l.miss(v, h)
	}
}

// miss notes that a guest is not here.
func (l *Links) miss(v *env.Env, h table.Handle) {
	if l.guests.Listed(h) {
		l.guests.Unlink(&l.present, h)
		v.Pool.Absent(classOf(h))
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
func (g *guest) stays() effects.Time {
	if g.spoke {
		return g.seen.Add(spokeFor)
	}
	return g.seen
}

// Who is the guest of a class; zero if there is none.
func (l *Links) Who(class int) effects.Incarnation {
	if g := l.guestOf(class); g != nil {
		return g.incarnation
	}
	return effects.Incarnation{}
}

// Name is what the guest of a class calls itself, for people.
func (l *Links) Name(class int) string {
	if g := l.guestOf(class); g != nil {
		return g.name
	}
	return ""
}

func (l *Links) guestOf(class int) *guest { return l.guests.Get(l.guests.At(int32(class) - 1)) }

// Classes is the number of fairness classes.
func (l *Links) Classes() int { return int(l.cfg.PeersMax) + 1 + len(l.plains) }

// Guests is the number of guests known.
func (l *Links) Guests() int { return l.guests.Len() }

func (l *Links) findGuest(who effects.Incarnation) table.Handle {
	for p := l.byGuest.Seek(table.Hash(l.seed, who[:])); p.Found(); p = l.byGuest.Next(p) {
		if l.guests.Get(p.Handle()).incarnation == who {
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
	if l.guests.Full() {
		var oldest table.Handle
		for slot := range l.guests.Slots() {
			h := l.guests.At(slot)
			if h == 0 || oldest != 0 && l.guests.Get(h).stays() >= l.guests.Get(oldest).stays() {
				continue
			}
			class := int(slot) + 1
			if v.Pool.ClassUse(class) == 0 && busy[class] == 0 && !l.guests.Get(h).link.owed {
				oldest = h
			}
		}
		if oldest == 0 {
			return 0
		}
		was := l.guests.Get(oldest).incarnation
		l.unreach(v, l.guests.Get(oldest))
		l.miss(v, oldest)
		v.Pool.Disown(classOf(oldest))
		l.left = classOf(oldest)
		l.byGuest.Remove(table.Hash(l.seed, was[:]), oldest)
		l.guests.Remove(oldest)
	}
	h, g := l.guests.Add()
	past := g.link.attempt
	*g = guest{incarnation: who, us: l.cfg.Key.For(who), link: g.link.emptied(), buffers: g.buffers[:0]}
	g.link.attempt = past + 1
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
func (g *guest) met(conn effects.Conn, name []byte, caps uint64) {
	g.conn, g.caps = conn, caps
	if g.name != string(name) {
		g.name = effects.Words(name)
	}
}

// guestOn is the guest that said hello on a connection.
func (l *Links) guestOn(conn effects.Conn) *guest {
	for slot := range l.guests.Slots() {
		if h := l.guests.At(slot); h != 0 && conn != 0 && l.guests.Get(h).conn == conn {
			return l.guests.Get(h)
		}
	}
	return nil
}
