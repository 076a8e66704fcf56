package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Any process can shake hands under many names in sequence. Such handshakes must not displace a peer that has sent a
// request from the receiver's table: for a time, only peers that also sent requests can displace that peer, and only if
// there are more such peers than rows.

var checkDisplaced = oracle.NewCheck("S18", "peers with requests that keep their row")

// peerRowOracle judges which peers a receiver no longer knows.
type peerRowOracle struct {
	oracleBase
	perIncarnation[peerRowState]
}

func (*peerRowOracle) subscribe(l *oracle.Subscriptions[peerRowOracle]) {
	oracle.On(l, func(o *peerRowOracle, _ *oracle.Call, e world.LinkLost) { o.recordLinkLost(e.Node, e.Peer) })
}

// peerRowState records the names under which an incarnation of a receiver got requests.
type peerRowState struct {
	peers []peerRow `snap:"skip"` // not hashed: the state of the queue implies all but the age of the requests
}

// peerRow records the requests that were sent under a name.
type peerRow struct {
	name        effects.Incarnation
	lastRequest effects.Time // time of the newest request, by the receiver's clock
	hasSent     bool         // a message of a peer that n knows has arrived
	wasServed   bool         // a request was accepted as a known peer's
	linkLost    bool         // the link was lost since
}

func (s *peerRowState) clearForReuse() { s.peers = s.peers[:0] }

// rowOf returns the record of a name. It creates the record if there is none.
func (or *peerRowOracle) rowOf(n *world.Node, name effects.Incarnation) *peerRow {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.peers, func(c peerRow) bool { return c.name == name })
	if i < 0 {
		i = len(state.peers)
		state.peers = append(state.peers, peerRow{name: name})
	}
	return &state.peers[i]
}

// recordMessage records a message, with the name of the sender and the name by which the message addresses n. If n
// knows the peer by these names, the peer competes for the rows from now on, whatever the kind of the message. Example:
// three strangers shake hands, and each sends an end-of-request message.
func (or *peerRowOracle) recordMessage(n *world.Node, name, to effects.Incarnation) {
	if name != (effects.Incarnation{}) && pd.IsGenuine(n, name, to) {
		or.rowOf(n, name).hasSent = true
	}
}

// recordLinkLost records that a peer's link is lost: the peer has to shake hands again, and the peer's waiting requests
// are refused.
func (or *peerRowOracle) recordLinkLost(n *world.Node, peer effects.Incarnation) {
	or.rowOf(n, peer).linkLost = true
	waiters := or.oracles().queue.stateOf(n).pending
	for i := range waiters {
		waiters[i].linkLost = waiters[i].linkLost || waiters[i].peer == peer
	}
}

// verifyReply checks the reply to a request under a name that n knows. Peers that send requests for chunks or renewals
// use different ports of n and have rows, too. The oracle does not count these peers, so nodes with such ports are not
// judged.
func (or *peerRowOracle) verifyReply(n *world.Node, w *pendingRequest) {
	t := or.facts()
	if n.LendsChunks || isDualRole(n) || w.peer == (effects.Incarnation{}) || !w.nameKnown ||
		!t.hasRequest || !t.hasReply || !t.reply.message.HasExt {
		return
	}
	c := or.rowOf(n, w.peer)
	age := w.arrivedAt.Sub(c.lastRequest)
	c.lastRequest = max(c.lastRequest, w.arrivedAt)
	if effects.CodeFromWire(t.reply.message.Ext.Code) != effects.Stale {
		if c.wasServed {
			or.countJudged(checkDisplaced)
		}
		c.wasServed = true
		// The reply to a request from before the loss says nothing about the peer's row now. Example: two requests wait
		// when the link is lost. The first gets a reply because its request was abandoned, before the sweep that
		// follows the loss refuses the second.
		c.linkLost = c.linkLost && w.linkLost
		return
	}
	if w.linkLost || !or.mustHaveRow(n, c, age) {
		c.wasServed = false // The peer has to shake hands again. Messages that the peer sends before it learns that are refused, too.
		or.countVoid(checkDisplaced)
		return
	}
	or.fail(checkDisplaced,
		"node %d does not know the sender of request %d any more, whose last request came %v before, and has rows for %d peers",
		n.AsSubject(), oracle.Message(w.request), age, cmp.Or(pd.InfoOf(n).Cfg.PeersMax, 256))
}

// mustHaveRow reports whether a peer certainly still has a row if the peer's newest request is so long ago.
func (or *peerRowOracle) mustHaveRow(n *world.Node, c *peerRow, age effects.Duration) bool {
	cfg := &pd.InfoOf(n).Cfg
	otherPeers, ofOrigin := 0, 0
	names := or.oracles().origins.stateOf(n)
	origin, _ := names.originOf(c.name)
	for i := range or.stateOf(n).peers {
		if x := &or.stateOf(n).peers[i]; x.name != c.name && x.hasSent {
			otherPeers++
			if o, _ := names.originOf(x.name); o == origin {
				ofOrigin++
			}
		}
	}
	limit := or.rowsForAll(n)
	if origins := names.countOrigins(); origins > 1 && ofOrigin+1 >= limit/origins {
		return false // The peers of an origin may have to share its part of the rows.
	}
	return c.wasServed && !c.linkLost && otherPeers+1 < limit &&
		age < cmp.Or(cfg.Tuning.ProvenPeerBonus, 60*effects.Second)
}

// isKnown reports whether n certainly still has a row for a peer that sent a request before.
func (or *peerRowOracle) isKnown(n *world.Node, peer effects.Incarnation) bool {
	if n.LendsChunks || isDualRole(n) {
		return false
	}
	c := or.rowOf(n, peer)
	return or.mustHaveRow(n, c, or.w.ReadClock(n).Sub(c.lastRequest))
}
