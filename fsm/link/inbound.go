package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/env"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/identity"
)

// Inbound peers are incarnations that shook hands with us: the receiver's side of a link.

// Inbound says which class the peer has who shook hands as who and was told that we are us; nobody else has one.
func (l *Links) Inbound(v *env.Env, who, us effects.Incarnation) (class int, ok bool) {
	h := l.findInbound(who)
	if h == 0 || !identity.Same(l.rows.Get(h).us, us) {
		return 0, false
	}
	l.rows.Get(h).spoke = true
	l.see(v, h)
	return classOf(h), true
}

// see notes that an inbound peer is here, and that others were not heard of for long: pages are no more kept for those.
func (l *Links) see(v *env.Env, h table.Handle) {
	l.rows.Get(h).seen = v.Now
	if l.rows.Listed(h) {
		l.rows.Unlink(&l.present, h)
	}
	l.rows.PushBack(&l.present, h)
	v.Pools.Present(classOf(h))
	for h := l.present.Front(); l.rows.Get(h).seen.Add(l.cfg.InboundTTL) < v.Now; h = l.present.Front() {
		l.miss(v, h)
	}
}

// miss notes that an inbound peer is not here.
func (l *Links) miss(v *env.Env, h table.Handle) {
	if l.rows.Listed(h) {
		l.rows.Unlink(&l.present, h)
		v.Pools.Absent(classOf(h))
	}
}

// OnInboundLost handles the data plane's word that a peer is gone.
func (l *Links) OnInboundLost(v *env.Env, who effects.Incarnation) {
	if h := l.findInbound(who); h != 0 {
		l.miss(v, h)
	}
}

// spokeFor is how much longer an inbound peer keeps its place once it has spoken. Anybody can say hello in one name
// after the other, without hearing what it is told: such inbound peers make room for one another first, and for who has
// business here last. It is bounded, so that former lives of peers make room for present ones that have said hello
// only.
const spokeFor = 60 * effects.Second

// stays says until when, compared with others, an inbound peer keeps its place.
func (g *Incarnation) stays() effects.Time {
	if g.spoke {
		return g.seen.Add(spokeFor)
	}
	return g.seen
}

// InboundLen is the number of inbound peers known.
func (l *Links) InboundLen() int { return int(l.inbound) }

func (l *Links) findInbound(who effects.Incarnation) table.Handle {
	for p := l.byName.Seek(table.Hash(l.seed, who[:])); p.Found(); p = l.byName.Next(p) {
		if l.rows.Get(p.Handle()).who == who {
			return p.Handle()
		}
	}
	return 0
}

// admit makes room for an inbound peer: the one unseen for longest goes (stays), if it has no pages
// here and nothing is kept for it; two inbound peers in one class would wait for each other.
func (l *Links) admit(who effects.Incarnation, v *env.Env, busy []uint32) table.Handle {
	if h := l.findInbound(who); h != 0 {
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
		l.replaced = classOf(oldest)
		l.byName.Remove(table.Hash(l.seed, was[:]), oldest)
		l.exit(oldest)
	}
	h := l.enter(who, l.cfg.Key.For(who), 0)
	l.see(v, h)
	l.byName.Add(table.Hash(l.seed, who[:]), h)
	return h
}

// Replaced says, once, which class the last hello took from its inbound peer for another one; 0 if none.
func (l *Links) Replaced() (class int) {
	class, l.replaced = l.replaced, 0
	return class
}

// said notes on which connection an inbound peer says hello: what comes there next is its word.
func (l *Links) said(h table.Handle, conn effects.Conn) {
	g := l.rows.Get(h)
	if g.conn != 0 {
		l.byConn.Remove(uint64(g.conn), h)
	}
	if g.conn = conn; conn != 0 {
		l.byConn.Add(uint64(conn), h)
	}
}

// met notes what a hello found: what the inbound peer calls itself, and what it can.
func (g *Incarnation) met(name []byte, caps uint64) {
	g.caps = caps
	if g.name != string(name) {
		g.name = effects.Words(name)
	}
}

// inboundOn is the inbound peer that said hello on a connection. Of some that did so on the same one, it is the one in
// the first row: which of their hellos came last says nothing of who has the connection.
func (l *Links) inboundOn(conn effects.Conn) *Incarnation {
	var first table.Handle
	for p := l.byConn.Seek(uint64(conn)); p.Found(); p = l.byConn.Next(p) {
		if h := p.Handle(); l.rows.Get(h).conn == conn && (first == 0 || h.Slot() < first.Slot()) {
			first = h
		}
	}
	return l.rows.Get(first)
}
