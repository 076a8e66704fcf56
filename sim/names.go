package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// A life has a name for each of its peers, which the two know and nobody else. Strangers know what everybody may: who lives.

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

// shown is what a stranger takes for a name: the identity that the life shows to all, or the name itself where nobody lives by it.
func (w *world) shown(name effects.Incarnation) effects.Incarnation {
	if n := w.lifeOf(name); n != nil {
		return n.incarnation
	}
	return name
}

// known is the name that a sender has for a receiver.
func (w *world) known(n *node, receiver effects.Incarnation) effects.Incarnation {
	if to := w.lifeOf(receiver); to != nil {
		return n.key.To(to.host, to.ports[effects.ChannelInit-1], to.ports[effects.ChannelAlloc-1])
	}
	return n.incarnation
}

// named says whether a sender has this name for any receiver.
func (w *world) named(n *node, us effects.Incarnation) bool {
	for _, to := range w.nodes {
		if us == n.key.To(to.host, to.ports[effects.ChannelInit-1], to.ports[effects.ChannelAlloc-1]) {
			return true
		}
	}
	return false
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

// disguised is a message that only its sender may say, as a stranger would say it in its name: commits, aborts, offers and
// withdrawals with what everybody knows of both ends. It must change nothing (S3, S8). Others are as they are; false: it is not to be sent.
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
