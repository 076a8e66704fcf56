package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// A life has a name for each of its peers, which the two know and nobody else. Strangers know what everybody may:
// who lives.

// protoVersion is the version of our extensions that strangers speak.
const protoVersion = 2

// lifeOf is the node whose present life has a name for somebody; nil if none does.
func (w *world) lifeOf(name effects.Incarnation) *node {
	for _, n := range w.nodes {
		if n.up && n.is(name) {
			return n
		}
	}
	return nil
}

// shown is what a stranger takes for a name: the identity that the life shows to all, or the name itself where
// nobody lives by it.
func (w *world) shown(name effects.Incarnation) effects.Incarnation {
	if n := w.lifeOf(name); n != nil {
		return n.incarnation
	}
	return name
}

// known is the name that a sender has for a receiver.
func (w *world) known(n *node, receiver effects.Incarnation) effects.Incarnation {
	if to := w.lifeOf(receiver); to != nil {
		return w.namesOf(n)[to.id]
	}
	return n.incarnation
}

// named says whether a sender has this name for any receiver.
func (w *world) named(n *node, us effects.Incarnation) bool {
	return n.is(us) && slices.Contains(w.namesOf(n), us)
}

// believes says whether a message that comes from that peer, as it says, also names n as only that peer knows it:
// anything else is a stranger's, whose words change nothing. To begin like n's name is not enough: strangers
// change real messages anywhere.
func (n *node) believes(peer, us effects.Incarnation) bool { return n.is(us) && n.key.For(peer) == us }

// namesOf are the names that this life of n has for the nodes that it may call, by their numbers. Each takes two
// hashes, and they are asked for with every message, so they are made once.
func (w *world) namesOf(n *node) []effects.Incarnation {
	if len(n.names) == 0 {
		for _, to := range w.nodes {
			n.names = append(n.names, n.key.To(to.host, to.ports[effects.ChannelInit-1], to.ports[effects.ChannelAlloc-1]))
		}
	}
	return n.names
}

// importedAs is the name by which a life of another node has imported n.
func (w *world) importedAs(n *node, from int32, life uint32) effects.Incarnation {
	for _, l := range w.links {
		if l.from == from && l.fromLife == life && l.target == n.pool {
			return l.us
		}
	}
	panic("BUG: a link is lost that nobody made")
}

// disguised is a message that only its sender may say, as a stranger would say it in its name: commits, aborts,
// offers and withdrawals with what everybody knows of both ends. It must change nothing (S3, S8). Others are as
// they are; false: it is not to be sent.
func (w *world) disguised(b []byte) ([]byte, bool) {
	var m protocol.AllocRequest
	if m.Decode(b, &wireLimits) == nil && len(m.Ext.Commit)+len(m.Ext.Abort) > 0 {
		m.Ext.Version, m.Ext.Incarnation, m.Ext.To = protoVersion, w.disguise(m.Ext.Incarnation), w.disguise(m.Ext.To)
		return m.Append(nil), m.HasExt
	}
	var o protocol.PullReadyNotif
	if o.Decode(b, &wireLimits) == nil {
		o.Ext.Version, o.Ext.Incarnation, o.Ext.To = protoVersion, w.disguise(o.Ext.Incarnation), w.disguise(o.Ext.To)
		return o.Append(nil), o.HasExt
	}
	return b, true
}

func (w *world) disguise(name protocol.UUID) protocol.UUID {
	return protocol.UUID(w.shown(effects.Incarnation(name)))
}
