package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// A life has a name for each of its peers, which the two know and nobody else. Strangers know what everybody may:
// who lives.

// protoVersion is the version of our extensions that strangers speak.
const protoVersion = 2

// lifeOf is the node whose present life has a name for somebody; nil if none does.
func (w *world) lifeOf(name effects.Incarnation) *node {
	for _, n := range w.nodes[:w.cast.ranks] {
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
		return n.nameTo(to.id)
	}
	return n.incarnation
}

// named says whether a sender has this name for any receiver.
func (w *world) named(n *node, us effects.Incarnation) bool {
	return n.is(us) && slices.ContainsFunc(w.nodes[:w.cast.ranks], func(to *node) bool { return n.nameTo(to.id) == us })
}

// believes says whether a message that comes from that peer, as it says, also names n as only that peer knows it:
// anything else is a stranger's, whose words change nothing. To begin like n's name is not enough: strangers
// change real messages anywhere.
func (n *node) believes(peer, us effects.Incarnation) bool { return n.is(us) && n.nameFor(peer) == us }

// nameFor is the name that this life of n has for who called it. It takes two hashes, so it is made once for each.
func (n *node) nameFor(peer effects.Incarnation) effects.Incarnation {
	name, made := n.callers[peer]
	if !made {
		if n.callers == nil { // A copy that the explorer made has none.
			n.callers = map[effects.Incarnation]effects.Incarnation{}
		}
		name = n.key.For(peer)
		n.callers[peer] = name
	}
	return name
}

// nameTo is the name that this life of n has for a node that it may call. It takes two hashes, and is asked for with
// every message, so it is made once.
func (n *node) nameTo(to int32) effects.Incarnation {
	for len(n.names) <= int(to) {
		n.names = append(n.names, effects.Incarnation{})
	}
	if n.names[to] == (effects.Incarnation{}) {
		init, alloc := addressOf(to, effects.ChannelInit), addressOf(to, effects.ChannelAlloc)
		n.names[to] = n.key.To(init.Host, init.Port, alloc.Port)
	}
	return n.names[to]
}

// disguised is a message that only its sender may say, as a stranger would say it in its name: commits, aborts, offers,
// withdrawals and renewals, with what everybody knows of one end or of both. It must change nothing (S3, S8, S24).
// Others are as they are. to is to whom such a message was said; one in which both names would be right is not to be
// sent.
func (w *world) disguised(b []byte, d draw.Of) (_ []byte, to effects.Incarnation, sent bool) {
	var m protocol.AllocRequest
	if m.Decode(b, &wireLimits) == nil && len(m.Ext.Commit)+len(m.Ext.Abort) > 0 {
		to = effects.Incarnation(m.Ext.To)
		sent = m.HasExt && w.disguise(&m.Ext.Incarnation, &m.Ext.To, d)
		m.Ext.Version = protoVersion
		return m.Append(nil), to, sent
	}
	var o protocol.PullReadyNotif
	if o.Decode(b, &wireLimits) == nil {
		to = effects.Incarnation(o.Ext.To)
		sent = o.HasExt && w.disguise(&o.Ext.Incarnation, &o.Ext.To, d)
		o.Ext.Version = protoVersion
		return o.Append(nil), to, sent
	}
	var r protocol.RenewRequest
	if r.Decode(b, &wireLimits) == nil {
		to = effects.Incarnation(r.To)
		sent = w.disguise(&r.Incarnation, &r.To, d)
		r.Version = protoVersion
		if d.Again().Permille(500) {
			r.Grants, r.Done = nil, r.Grants // They are over, it says.
		}
		return r.Append(nil), to, sent
	}
	return b, to, true
}

// forgeWord tells a receiver, as a stranger who has heard of one of its grants, that its writer is done, or will not
// write. It says false if there is none.
func (w *world) forgeWord(n *node, d draw.Of) bool {
	var ids []effects.GrantID
	for id, g := range n.grants {
		if !g.bearer() && n.open(g) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return false
	}
	slices.Sort(ids)
	g := n.grants[ids[d.Below(uint64(len(ids)))]]
	layout := w.plan.Rank.Layout
	m := protocol.AllocRequest{Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype, HasExt: true}
	m.Ext = protocol.AllocExt{Version: protoVersion, Incarnation: protocol.UUID(g.peer),
		To: protocol.UUID(n.nameFor(g.peer)), Operation: 1}
	if word := []uint64{uint64(g.id)}; d.Again().Permille(500) {
		m.Ext.Commit = word
	} else {
		m.Ext.Abort = word
	}
	if !w.disguise(&m.Ext.Incarnation, &m.Ext.To, d.Again().Again()) {
		return false
	}
	w.result.fault(plan.FaultHostile)
	w.stranger(n, effects.ChannelAlloc, m.Append(nil))
	return true
}

// disguise replaces the name that a stranger does not know, or both, by what everybody may know of that life. It
// returns false if what remains would be the word of one who knows both.
func (w *world) disguise(from, to *protocol.UUID, d draw.Of) bool {
	which := d.Below(3)
	was := [2]protocol.UUID{*from, *to}
	if which != 1 {
		*from = protocol.UUID(w.shown(effects.Incarnation(*from)))
	}
	if which != 2 {
		*to = protocol.UUID(w.shown(effects.Incarnation(*to)))
	}
	return was != [2]protocol.UUID{*from, *to} || w.lifeOf(effects.Incarnation(*to)) == nil
}
