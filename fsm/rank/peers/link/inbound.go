package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/env"
	"github.com/kvferry/kvferry/fsm/table"
	"github.com/kvferry/kvferry/identity"
)

// inbounds holds the peers that have shaken hands with this node: the receiver's side of a link.
type inbounds struct {
	seed          uint64
	count         uint32        // number of inbound peers, each with a row in incarnations
	byID          table.Index   // by incarnation name
	byConn        table.Index   `snap:"skip"` // by the connection of the last hello
	present       table.List    // the inbound peers that are present; the peer that was seen longest ago is first
	replacedClass int           // class that the last hello took from another peer; 0: none
	rowsByOrigin  []uint32      `snap:"scratch"` // by memory.Pools.OriginSlotOf: inbound peers
	outcomes      reachOutcomes // outcomes of attempts to reach inbound peers, for the receiver
	vanillas      vanillaPeers  // peers without extensions; empty if no plane serves such peers
	messages      serverMessages
}

func (in *inbounds) recycle(seed uint64) inbounds {
	return inbounds{seed: seed, byID: in.byID.Recycle(), byConn: in.byConn.Recycle(), rowsByOrigin: in.rowsByOrigin[:0]}
}

// inboundView bundles the inbound peers with the environment of the present step. It is valid for one call and must not
// be stored.
type inboundView struct {
	v    *env.Env
	cfg  *Config
	rows *incarnations
	in   *inbounds
}

// viewInbound returns the inbound peers with the environment of the present step.
func (l *Links) viewInbound(v *env.Env) inboundView {
	return inboundView{v: v, cfg: &l.cfg, rows: &l.rows, in: &l.in}
}

// IdentifyPeer returns the fairness class of the inbound peer that sent a message. The peer is identified by both
// incarnation names that the message states: the peer's own name, and the name of this node that was told to this peer
// only. The code is Stale if no peer with these names has completed a hello, and Forbidden if another identity than that
// of the hello sent the message (S29). If the code is OK, IdentifyPeer marks the peer as seen and as having used the
// names; otherwise nothing changes.
func (l *Links) IdentifyPeer(v *env.Env, ev *effects.Received, peer, selfID effects.Incarnation) (class int, code effects.Code) {
	i := l.viewInbound(v)
	h := i.findInbound(peer)
	if h == 0 || !identity.EqualSecrets(l.rows.get(h).selfID, selfID) {
		return 0, effects.Stale
	}
	g := l.rows.get(h)
	if !ev.Principal.MayActFor(g.principal) {
		v.Out.Mark(Marks.NameForbidden)
		return 0, effects.Forbidden
	}
	g.usedName = true
	if !g.linkLost {
		i.markPresent(h)
	}
	return classOf(h), effects.OK
}

// StatedClass returns the class of the inbound peer that shook hands under a name, as the sender of a message states
// it. The class is 0 if there is no such peer, if the peer was evicted, or if the peer proved another identity than the
// sender of the message. The name alone does not prove that the sender is that peer.
func (l *Links) StatedClass(ev *effects.Received, peer effects.Incarnation) (class int) {
	if x := l.IncarnationByClass(l.ClassByID(peer)); x != nil && !ev.Principal.MayActFor(x.principal) {
		return 0
	}
	return l.ClassByID(peer)
}

// ClassByID returns the class of the inbound peer that shook hands under a name, or 0 if there is none or if the peer
// was evicted. The name alone does not prove that the sender of a message is that peer.
func (l *Links) ClassByID(peer effects.Incarnation) (class int) {
	i := inboundView{cfg: &l.cfg, rows: &l.rows, in: &l.in}
	if h := i.findInbound(peer); h != 0 {
		return classOf(h)
	}
	return 0
}

// markPresent marks an inbound peer as present. Peers that were silent for longer than InboundTTL become absent, and
// pages are no longer kept free for them.
func (i *inboundView) markPresent(h table.Handle) {
	rows, present := &i.rows.rows, &i.in.present
	rows.Get(h).seenAt = i.v.Now
	if rows.InList(h) {
		rows.Unlink(present, h)
	}
	rows.PushBack(present, h)
	i.v.Pools.MarkPresent(classOf(h))
	for h := present.Front(); rows.Get(h).seenAt.Add(i.cfg.InboundTTL) < i.v.Now; h = present.Front() {
		i.markAbsent(h)
	}
}

// markAbsent marks an inbound peer as absent.
func (i *inboundView) markAbsent(h table.Handle) {
	if i.rows.rows.InList(h) {
		i.rows.rows.Unlink(&i.in.present, h)
		i.v.Pools.MarkAbsent(classOf(h))
	}
}

// OnInboundLost handles the data plane's report that a peer is gone. It returns the peer's class, or 0 if the peer is
// unknown. If silent is set, nothing more can come of the peer's requests, and the peer is given nothing until it
// shakes hands again: earlier requests may still arrive, but nobody would use what they ask for.
func (l *Links) OnInboundLost(v *env.Env, peer effects.Incarnation, silent bool) (class int) {
	i := l.viewInbound(v)
	h := i.findInbound(peer)
	if h == 0 {
		return 0
	}
	i.markAbsent(h)
	if silent { // The loss of a link of this node to the peer says nothing about the peer's own link.
		i.rows.get(h).linkLost = true
	}
	return classOf(h)
}

// replaceTime returns the time by which inbound peers are compared when one must be replaced; the earliest is replaced
// first. A peer that has used the name that it was given counts as seen later by Config.ProvenPeerBonus.
//
// The reason is that any host can send hellos under one name after another without reading the replies. Peers that have
// only sent a hello replace each other first, before they replace peers that use the link. ProvenPeerBonus is bounded, so that
// former incarnations of peers make room for present ones that have only sent a hello.
func (i *inboundView) replaceTime(g *Incarnation) effects.Time {
	if g.usedName {
		return g.seenAt.Add(i.cfg.ProvenPeerBonus)
	}
	return g.seenAt
}

// CountInbound returns the number of inbound peers.
func (l *Links) CountInbound() int { return int(l.in.count) }

// findInbound returns the row of the inbound peer with a name, or zero.
func (i *inboundView) findInbound(peer effects.Incarnation) table.Handle {
	for p := i.in.byID.Find(table.Hash(i.in.seed, peer[:])); p.Found(); p = i.in.byID.Next(p) {
		if i.rows.get(p.Handle()).peerID == peer {
			return p.Handle()
		}
	}
	return 0
}

// mayAdmit reports whether a principal may send a hello under a name. The name of a peer that proved an identity belongs
// to that identity for as long as the row lasts.
func (i *inboundView) mayAdmit(peer effects.Incarnation, principal effects.Principal) bool {
	h := i.findInbound(peer)
	return h == 0 || principal.MayActFor(i.rows.get(h).principal)
}

// admitPeer returns the row of the inbound peer with a name, and inserts a new peer, which counts against an Origin. If
// the table is full, or if the rest of it is for other Origins, admitPeer replaces another peer (findReplaceable).
// admitPeer returns zero if no peer can be replaced.
func (i *inboundView) admitPeer(peer effects.Incarnation, origin effects.Origin, classRows []uint32) table.Handle {
	if h := i.findInbound(peer); h != 0 {
		i.v.Pools.SetOrigin(classOf(h), origin)
		i.markPresent(h)
		i.rows.get(h).linkLost = false
		return h
	}
	if free := i.cfg.PeersMax - i.in.count; free <= i.cfg.PeersMax/lastRows {
		if s := i.shareOfRows(origin); free == 0 || i.mustLeaveRows(s, origin) {
			oldest := i.findReplaceable(s, classRows)
			if oldest == 0 {
				return 0
			}
			i.evictPeer(oldest)
		}
	}
	h := i.rows.addRow(peer, i.cfg.Key.InboundName(peer), 0)
	i.in.count++
	i.v.Pools.SetOrigin(classOf(h), origin)
	i.markPresent(h)
	i.in.byID.Add(table.Hash(i.in.seed, peer[:]), h)
	return h
}

// lastRows is the part of the rows, one in so many, that is for Origins that do not have half of the rows already.
const lastRows = 8

// mustLeaveRows reports whether the last rows are for other Origins than that of a new peer. Otherwise a host that keeps
// all rows busy under as many names would keep every other host away.
func (i *inboundView) mustLeaveRows(s rowShare, origin effects.Origin) bool {
	return origin != 0 && s.held >= (i.cfg.PeersMax+1)/2
}

// rowShare says how many inbound peers may have one Origin while the table is full, and how many have it.
type rowShare struct {
	origin   int    // memory.Pools.OriginSlotOf of the new peer; -1: nothing is known from its Origin
	held     uint32 // peers that have the Origin of the new peer
	most     uint32 // the share of each Origin
	isShared bool   // there are peers with other Origins
}

// shareOfRows counts the inbound peers of each Origin. All Origins have the same share of the table, and at least one
// row. The Origin of the new peer is one of them.
func (i *inboundView) shareOfRows(origin effects.Origin) (s rowShare) {
	counts := table.RecycleSlice(i.in.rowsByOrigin, i.v.Pools.OriginSlots())
	i.in.rowsByOrigin = counts
	origins := uint32(0)
	for slot := range i.rows.rows.Slots() {
		if g := i.rows.get(i.rows.rows.At(slot)); g != nil && g.isInbound() {
			n := &counts[i.v.Pools.OriginSlotOf(int(slot)+1)]
			if *n++; *n == 1 {
				origins++
			}
		}
	}
	if s.origin = i.v.Pools.FindOrigin(origin); s.origin >= 0 {
		s.held = counts[s.origin]
	}
	s.isShared = s.held < i.in.count
	if s.held == 0 {
		origins++
	}
	s.most = max(1, i.cfg.PeersMax/origins)
	return s
}

// findReplaceable returns the inbound peer that makes room for a new peer, or zero if none can. It must have no pages
// here, and nothing may be kept for it, because two inbound peers in the same class would wait for each other. If the
// Origin of the new peer has its share of the table, only a peer with that Origin makes room, so that a host that
// invents names keeps no other host away. Otherwise a peer makes room whose Origin has more than its share, if there is
// one. Among those that remain, it is the peer for which replaceTime returns the earliest time.
func (i *inboundView) findReplaceable(s rowShare, classRows []uint32) (oldest table.Handle) {
	oldestExceeds := false
	for slot := range i.rows.rows.Slots() {
		h, class := i.rows.rows.At(slot), int(slot)+1
		g := i.rows.get(h)
		if g == nil || !g.isInbound() || i.v.Pools.ClassUse(class) > 0 || classRows[class] > 0 || g.link.importPending {
			continue
		}
		origin := i.v.Pools.OriginSlotOf(class)
		if s.held >= s.most && origin != s.origin {
			continue
		}
		exceeds := i.in.rowsByOrigin[origin] > s.most
		if oldest == 0 || exceeds && !oldestExceeds ||
			exceeds == oldestExceeds && i.replaceTime(g) < i.replaceTime(i.rows.get(oldest)) {
			oldest, oldestExceeds = h, exceeds
		}
	}
	return oldest
}

// evictPeer removes an inbound peer and frees its class for another.
func (i *inboundView) evictPeer(h table.Handle) {
	former := i.rows.get(h).peerID
	i.dropLink(h)
	i.markAbsent(h)
	i.v.Pools.ReassignClass(classOf(h))
	i.in.replacedClass = classOf(h)
	i.in.byID.Remove(table.Hash(i.in.seed, former[:]), h)
	i.recordHelloConn(h, 0, 0)
	i.in.count--
	i.rows.removeRow(h)
}

// TakeReplaced returns the class that the last hello took from another inbound peer, or 0 if there is none. It reports
// a class once.
func (l *Links) TakeReplaced() (class int) {
	class, l.in.replacedClass = l.in.replacedClass, 0
	return class
}

// recordHello records the identity, the tenants and the trust domain of the inbound peer that sent a hello, and the
// readable name and the capabilities that it stated. A peer that had proved no identity is bound to its identity from
// now on: security was turned on while it ran. But a peer that once proved nothing, or another trust domain than this
// node's, never gets into this node's domain under the same name: others may have heard the name (S32).
func (g *Incarnation) recordHello(ev *effects.Received, name []byte, caps uint64) {
	g.principal, g.caps = ev.Principal, caps
	g.tenants = ev.Tenants
	if g.realm == 0 {
		g.realm = ev.Realm
	}
	if g.name != string(name) {
		g.name = effects.SanitizeText(name)
	}
}

// recordHelloConn records the connection on which an inbound peer sent its hello, and the peer's clock at that time.
// Later messages on the connection are attributed to the peer.
//
// A hello may be handled after a hello that was sent later on a newer connection. The older connection was given up by
// the peer, so the newer one stays. The next hello is compared with the older stamp, so that a wrong stamp does not
// lock a peer out for long.
func (i *inboundView) recordHelloConn(h table.Handle, conn effects.Conn, clock int64) {
	g := i.rows.get(h)
	older := conn != 0 && clock != 0 && clock < g.helloStamp
	if g.helloStamp = clock; older {
		i.v.Out.Mark(Marks.HelloOlder)
		return
	}
	if g.helloConn != 0 {
		i.in.byConn.Remove(uint64(g.helloConn), h)
	}
	if g.helloConn = conn; conn != 0 {
		i.in.byConn.Add(uint64(conn), h)
	}
}

// findByConn returns the inbound peer that sent a hello on a connection, or nil. If several peers did so on the same
// connection, findByConn returns the peer with the first row, because the order of the hellos does not show which peer
// owns the connection.
func (i *inboundView) findByConn(conn effects.Conn) *Incarnation {
	var first table.Handle
	for p := i.in.byConn.Find(uint64(conn)); p.Found(); p = i.in.byConn.Next(p) {
		if h := p.Handle(); i.rows.get(h).helloConn == conn && (first == 0 || h.Slot() < first.Slot()) {
			first = h
		}
	}
	return i.rows.get(first)
}
