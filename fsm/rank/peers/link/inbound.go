package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/identity"
)

// inbounds are the peers that shook hands with us: the receiver's side of a link.
type inbounds struct {
	seed     uint64
	count    uint32 // of those with a row
	byName   table.Index
	byConn   table.Index `snap:"skip"` // by where they said hello
	present  table.List  // those that are, those unseen for longest first
	replaced int         // the class that the last hello took
	reached  reaches     // for the receiver to take
	plains   plains      // empty where the planes serve none
	hello    helloIn
}

func (in *inbounds) emptied(seed uint64) inbounds {
	return inbounds{seed: seed, byName: in.byName.Emptied(), byConn: in.byConn.Emptied()}
}

// A hearing is these, with what they need for the time of one call: nobody keeps it.
type hearing struct {
	v    *env.Env
	cfg  *Config
	rows *incarnations
	in   *inbounds
}

func (l *Links) hearing(v *env.Env) hearing {
	return hearing{v: v, cfg: &l.cfg, rows: &l.rows, in: &l.in}
}

// Inbound says which class the peer has who shook hands as who and was told that we are us; nobody else has one.
func (l *Links) Inbound(v *env.Env, who, us effects.Incarnation) (class int, ok bool) {
	i := l.hearing(v)
	h := i.find(who)
	if h == 0 || !identity.Same(l.rows.get(h).us, us) {
		return 0, false
	}
	g := l.rows.get(h)
	g.spoke = true
	if !g.gone {
		i.see(h)
	}
	return classOf(h), true
}

// Named says which class the peer has that shook hands by a name; 0: none did, or it was forgotten. Who says the name
// is not known to be that peer.
func (l *Links) Named(who effects.Incarnation) (class int) {
	i := hearing{cfg: &l.cfg, rows: &l.rows, in: &l.in}
	if h := i.find(who); h != 0 {
		return classOf(h)
	}
	return 0
}

// see notes that an inbound peer is here, and that others were not heard of for long: pages are no more kept for those.
func (i *hearing) see(h table.Handle) {
	rows, present := &i.rows.rows, &i.in.present
	rows.Get(h).seen = i.v.Now
	if rows.Listed(h) {
		rows.Unlink(present, h)
	}
	rows.PushBack(present, h)
	i.v.Pools.Present(classOf(h))
	for h := present.Front(); rows.Get(h).seen.Add(i.cfg.InboundTTL) < i.v.Now; h = present.Front() {
		i.miss(h)
	}
}

// miss notes that an inbound peer is not here.
func (i *hearing) miss(h table.Handle) {
	if i.rows.rows.Listed(h) {
		i.rows.rows.Unlink(&i.in.present, h)
		i.v.Pools.Absent(classOf(h))
	}
}

// OnInboundLost handles the data plane's word that a peer is gone, and says which class that was; 0: none. Where
// nothing can come of it any more (silent) it is given nothing until it shakes hands again: what it said before may
// still be on its way, and nobody would use what it asks for.
func (l *Links) OnInboundLost(v *env.Env, who effects.Incarnation, silent bool) (class int) {
	i := l.hearing(v)
	h := i.find(who)
	if h == 0 {
		return 0
	}
	i.miss(h)
	if silent { // A link of ours to it says nothing of its own.
		i.rows.get(h).gone = true
	}
	return classOf(h)
}

// stays says until when, compared with others, an inbound peer keeps its place: one that has spoken for longer
// (Config.SpokeFor). Anybody can say hello in one name after the other, without hearing what it is told: such inbound
// peers make room for one another first, and for who has business here last. It is bounded, so that former lives of
// peers make room for present ones that have said hello only.
func (i *hearing) stays(g *Incarnation) effects.Time {
	if g.spoke {
		return g.seen.Add(i.cfg.SpokeFor)
	}
	return g.seen
}

// InboundLen is the number of inbound peers known.
func (l *Links) InboundLen() int { return int(l.in.count) }

func (i *hearing) find(who effects.Incarnation) table.Handle {
	for p := i.in.byName.Seek(table.Hash(i.in.seed, who[:])); p.Found(); p = i.in.byName.Next(p) {
		if i.rows.get(p.Handle()).who == who {
			return p.Handle()
		}
	}
	return 0
}

// admit makes room for an inbound peer: the one unseen for longest goes (stays), if it has no pages
// here and nothing is kept for it; two inbound peers in one class would wait for each other.
func (i *hearing) admit(who effects.Incarnation, busy []uint32) table.Handle {
	if h := i.find(who); h != 0 {
		i.see(h)
		i.rows.get(h).gone = false
		return h
	}
	if i.in.count >= i.cfg.PeersMax {
		oldest := i.oldest(busy)
		if oldest == 0 {
			return 0
		}
		i.replace(oldest)
	}
	h := i.rows.enter(who, i.cfg.Key.For(who), 0)
	i.in.count++
	i.see(h)
	i.in.byName.Add(table.Hash(i.in.seed, who[:]), h)
	return h
}

// oldest is the inbound peer that makes room for another, or zero.
func (i *hearing) oldest(busy []uint32) (oldest table.Handle) {
	for slot := range i.rows.rows.Slots() {
		h := i.rows.rows.At(slot)
		g := i.rows.get(h)
		if g == nil || !g.inbound() || oldest != 0 && i.stays(g) >= i.stays(i.rows.get(oldest)) {
			continue
		}
		class := int(slot) + 1
		if i.v.Pools.ClassUse(class) == 0 && busy[class] == 0 && !g.link.owed {
			oldest = h
		}
	}
	return oldest
}

// replace ends what is known of an inbound peer, and leaves its class to another.
func (i *hearing) replace(h table.Handle) {
	was := i.rows.get(h).who
	i.unreach(h)
	i.miss(h)
	i.v.Pools.Disown(classOf(h))
	i.in.replaced = classOf(h)
	i.in.byName.Remove(table.Hash(i.in.seed, was[:]), h)
	i.said(h, 0, 0)
	i.in.count--
	i.rows.exit(h)
}

// Replaced says, once, which class the last hello took from its inbound peer for another one; 0 if none.
func (l *Links) Replaced() (class int) {
	class, l.in.replaced = l.in.replaced, 0
	return class
}

// met notes what a hello found: what the inbound peer calls itself, and what it can.
func (g *Incarnation) met(name []byte, caps uint64) {
	g.caps = caps
	if g.name != string(name) {
		g.name = effects.Words(name)
	}
}

// said notes on which connection an inbound peer says hello, and when by its clock: what comes there next is its word.
// A hello may be read after one that was written later, on a newer connection: the older connection was given up, and
// the newer one stays. The next hello is compared with the older one: a wrong stamp keeps nobody out for long.
func (i *hearing) said(h table.Handle, conn effects.Conn, clock int64) {
	g := i.rows.get(h)
	older := conn != 0 && clock != 0 && clock < g.hello
	if g.hello = clock; older {
		i.v.Out.Mark(Marks.HelloOlder)
		return
	}
	if g.conn != 0 {
		i.in.byConn.Remove(uint64(g.conn), h)
	}
	if g.conn = conn; conn != 0 {
		i.in.byConn.Add(uint64(conn), h)
	}
}

// on is the inbound peer that said hello on a connection. Of some that did so on the same one, it is the one in the
// first row: which of their hellos came last says nothing of who has the connection.
func (i *hearing) on(conn effects.Conn) *Incarnation {
	var first table.Handle
	for p := i.in.byConn.Seek(uint64(conn)); p.Found(); p = i.in.byConn.Next(p) {
		if h := p.Handle(); i.rows.get(h).conn == conn && (first == 0 || h.Slot() < first.Slot()) {
			first = h
		}
	}
	return i.rows.get(first)
}
