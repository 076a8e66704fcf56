package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/identity"
)

// inbounds holds the peers that have shaken hands with this node: the receiver's side of a link.
type inbounds struct {
	seed     uint64
	count    uint32      // number of inbound peers, each with a row in incarnations
	byName   table.Index // by incarnation name
	byConn   table.Index `snap:"skip"` // by the connection of the last hello
	present  table.List  // the inbound peers that are present; the peer that was seen longest ago is first
	replaced int         // class that the last hello took from another peer; 0: none
	reached  reaches     // outcomes of attempts to reach inbound peers, for the receiver
	plains   plains      // peers without extensions; empty if no plane serves such peers
	hello    helloIn
}

func (in *inbounds) emptied(seed uint64) inbounds {
	return inbounds{seed: seed, byName: in.byName.Emptied(), byConn: in.byConn.Emptied()}
}

// hearing bundles the inbound peers with the environment of the present step. It is valid for one call and must not be
// stored.
type hearing struct {
	v    *env.Env
	cfg  *Config
	rows *incarnations
	in   *inbounds
}

// hearing returns the inbound peers with the environment of the present step.
func (l *Links) hearing(v *env.Env) hearing {
	return hearing{v: v, cfg: &l.cfg, rows: &l.rows, in: &l.in}
}

// Inbound returns the fairness class of an inbound peer. The peer is identified by both incarnation names: the peer's
// own name, and the name of this node that was told to this peer only. Inbound reports false if no peer with these
// names has completed a hello. Inbound also marks the peer as seen and as having used the names.
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

// Named returns the class of the inbound peer that shook hands under a name, or 0 if there is none or if the peer was
// evicted. The name alone does not prove that the sender of a message is that peer.
func (l *Links) Named(who effects.Incarnation) (class int) {
	i := hearing{cfg: &l.cfg, rows: &l.rows, in: &l.in}
	if h := i.find(who); h != 0 {
		return classOf(h)
	}
	return 0
}

// see marks an inbound peer as present. Peers that were silent for longer than InboundTTL become absent, and pages are
// no longer kept free for them.
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

// miss marks an inbound peer as absent.
func (i *hearing) miss(h table.Handle) {
	if i.rows.rows.Listed(h) {
		i.rows.rows.Unlink(&i.in.present, h)
		i.v.Pools.Absent(classOf(h))
	}
}

// OnInboundLost handles the data plane's report that a peer is gone. It returns the peer's class, or 0 if the peer is
// unknown. If silent is set, nothing more can come of the peer's requests, and the peer is given nothing until it
// shakes hands again: earlier requests may still arrive, but nobody would use what they ask for.
func (l *Links) OnInboundLost(v *env.Env, who effects.Incarnation, silent bool) (class int) {
	i := l.hearing(v)
	h := i.find(who)
	if h == 0 {
		return 0
	}
	i.miss(h)
	if silent { // The loss of a link of this node to the peer says nothing about the peer's own link.
		i.rows.get(h).gone = true
	}
	return classOf(h)
}

// stays returns the time by which inbound peers are compared when one must be replaced; the earliest is replaced first.
// A peer that has used the name that it was given counts as seen later by Config.SpokeFor.
//
// The reason is that any host can send hellos under one name after another without reading the replies. Peers that have
// only sent a hello replace each other first, before they replace peers that use the link. SpokeFor is bounded, so that
// former incarnations of peers make room for present ones that have only sent a hello.
func (i *hearing) stays(g *Incarnation) effects.Time {
	if g.spoke {
		return g.seen.Add(i.cfg.SpokeFor)
	}
	return g.seen
}

// InboundLen returns the number of inbound peers.
func (l *Links) InboundLen() int { return int(l.in.count) }

// find returns the row of the inbound peer with a name, or zero.
func (i *hearing) find(who effects.Incarnation) table.Handle {
	for p := i.in.byName.Seek(table.Hash(i.in.seed, who[:])); p.Found(); p = i.in.byName.Next(p) {
		if i.rows.get(p.Handle()).who == who {
			return p.Handle()
		}
	}
	return 0
}

// admit returns the row of the inbound peer with a name, and inserts a new peer. If the table is full, admit replaces
// the peer for which stays returns the earliest time. The replaced peer must have no pages here, and nothing may be
// kept for it, because two inbound peers in the same class would wait for each other. admit returns zero if no peer can
// be replaced.
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

// oldest returns the inbound peer that can be replaced first, or zero if none can be replaced.
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

// replace removes an inbound peer and frees its class for another.
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

// Replaced returns the class that the last hello took from another inbound peer, or 0 if there is none. It reports a
// class once.
func (l *Links) Replaced() (class int) {
	class, l.in.replaced = l.in.replaced, 0
	return class
}

// met records the readable name and the capabilities that an inbound peer stated in its hello.
func (g *Incarnation) met(name []byte, caps uint64) {
	g.caps = caps
	if g.name != string(name) {
		g.name = effects.Words(name)
	}
}

// said records the connection on which an inbound peer sent its hello, and the peer's clock at that time. Later
// messages on the connection are attributed to the peer.
//
// A hello may be handled after a hello that was sent later on a newer connection. The older connection was given up by
// the peer, so the newer one stays. The next hello is compared with the older stamp, so that a wrong stamp does not
// lock a peer out for long.
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

// on returns the inbound peer that sent a hello on a connection, or nil. If several peers did so on the same
// connection, on returns the peer with the first row, because the order of the hellos does not show which peer owns the
// connection.
func (i *hearing) on(conn effects.Conn) *Incarnation {
	var first table.Handle
	for p := i.in.byConn.Seek(uint64(conn)); p.Found(); p = i.in.byConn.Next(p) {
		if h := p.Handle(); i.rows.get(h).conn == conn && (first == 0 || h.Slot() < first.Slot()) {
			first = h
		}
	}
	return i.rows.get(first)
}
