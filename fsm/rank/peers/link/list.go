package link

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/table"
)

// PeerInfo describes a peer to operators. No decision depends on it.
type PeerInfo struct {
	Outbound table.Handle // zero: an inbound peer
	Class    int          // the fairness class of the peer's pages here
	ID       effects.Incarnation
	// Name is the readable name that an inbound peer stated, which is a claim.
	Name      string
	Addr      PeerAddr // of an outbound peer
	Principal effects.Principal
	Link      effects.Link // to the peer's pages; zero: there is none
	Plane     string       // the data plane of the link
	State     string       // a name of stateNames, or one of the names of inbound peers
	// Since is when an outbound peer entered its state, and zero for an inbound peer.
	Since effects.Time
	// HeardAt is when a message of the peer was accepted last: of an outbound peer a reply. Zero: none was.
	HeardAt effects.Time
	// Failures counts the failures in a row of an outbound peer, of which Cause and Why are the last one.
	Failures uint32
	Cause    effects.Code
	Why      *effects.Why // nil if nothing is known
	RetryAt  effects.Time // in backoff: when the next attempt is due; otherwise zero
	InFlight int          // requests to an outbound peer without a reply
}

// stateNames are the names of the states of an outbound peer for operators. They are stable.
//
//kvferry:table
var stateNames = [...]string{Idle: "idle", Opening: "opening", Greeting: "greeting", Importing: "importing", Listing: "listing",
	Ready: "ready", Backoff: "backoff"}

// The states of inbound peers for operators.
const (
	inboundPresent  = "present"   // the peer was heard of lately
	inboundSilent   = "silent"    // the peer was not heard of for so long that its share is for others
	inboundLinkLost = "link lost" // the peer's link to this node's pages is lost, and no handshake followed
	inboundVanilla  = "plain"     // the peer speaks no extensions of kvferry's
)

// EachPeer calls visit with every peer: the outbound peers, the inbound peers, and the peers without extensions, each in
// the order of their slots. The PeerInfo is valid during the call.
func (l *Links) EachPeer(timers *kernel.Timers, visit func(*PeerInfo)) {
	var x PeerInfo
	for slot := range l.out.peers.Slots() {
		h := l.out.peers.At(slot)
		if h == 0 {
			continue
		}
		p := l.out.peers.Get(h)
		g := l.rows.get(p.row)
		x = PeerInfo{Outbound: h, Class: classOf(p.row), ID: g.formerPeerID, Addr: p.addr, Principal: g.principal, Link: g.link.id,
			Plane: l.planeOf(g), State: stateNames[p.state], Since: p.stateSince, HeardAt: p.heardAt, Failures: p.failures,
			Cause: p.cause, Why: p.why}
		if p.state == Backoff {
			x.RetryAt, _ = timers.DeadlineOf(p.timer)
		}
		for i := range p.lanes {
			x.InFlight += p.lanes[i].InFlight()
		}
		visit(&x)
	}
	for slot := range l.rows.rows.Slots() {
		h := l.rows.rows.At(slot)
		if g := l.rows.get(h); g != nil && g.isInbound() {
			x = PeerInfo{Class: classOf(h), ID: g.peerID, Name: g.name, Principal: g.principal, Link: g.link.id, Plane: l.planeOf(g),
				HeardAt: g.seenAt, State: inboundSilent}
			switch {
			case g.linkLost:
				x.State = inboundLinkLost
			case l.rows.rows.InList(h):
				x.State = inboundPresent
			}
			visit(&x)
		}
	}
	for i := range l.in.vanillas {
		if p := &l.in.vanillas[i]; p.conn != 0 {
			x = PeerInfo{Class: l.rows.firstVanillaClass() + i, HeardAt: p.seenAt, State: inboundVanilla}
			visit(&x)
		}
	}
}

// planeOf returns the plane of the link to the pages of a peer, or "".
func (l *Links) planeOf(g *Incarnation) string {
	if k := &g.link; k.state == linkUp && k.hasNextPlane() {
		return string(l.cfg.PlaneNames[k.commonPlanes[k.planeIndex].planeIndex])
	}
	return ""
}

// BreakerInfo describes a circuit breaker to operators.
type BreakerInfo struct {
	Addr      PeerAddr
	Until     effects.Time // afterwards one request at a time is sent, or all of them if Trial is false
	Code      effects.Code // of the refusal that opened the breaker
	Reason    string       // the reason that the receiver stated
	MinChunks uint32       // smaller puts are sent
	Trial     bool
}

// EachBreaker calls visit with every breaker, the oldest first.
func (b *Breakers) EachBreaker(visit func(*BreakerInfo)) {
	for h := b.byAge.Front(); h != 0; h = b.slab.Next(h) {
		x := b.slab.Get(h)
		visit(&BreakerInfo{Addr: x.addr, Until: x.until, Code: x.code, Reason: x.reason, MinChunks: x.minChunks, Trial: x.trial})
	}
}
