package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A life has a name for each of its peers, which the two know and nobody else. Strangers know what everybody may:
// who lives.

// protoVersion is the version of our extensions that strangers speak.
const protoVersion = 2

// LifeOf is the node whose present life has a name for somebody; nil if none does.
func (w *Cluster) LifeOf(name effects.Incarnation) *world.Node {
	for _, n := range w.Nodes[:w.Ranks] {
		if n.Up && IsNameOf(n, name) {
			return n
		}
	}
	return nil
}

// shown is what a stranger takes for a name: the identity that the life shows to all, or the name itself where
// nobody lives by it.
func (w *Cluster) shown(name effects.Incarnation) effects.Incarnation {
	if n := w.LifeOf(name); n != nil {
		return Its(n).Incarnation
	}
	return name
}

// known is the name that a sender has for a receiver.
func (w *Cluster) known(n *world.Node, receiver effects.Incarnation) effects.Incarnation {
	if to := w.LifeOf(receiver); to != nil {
		return nameTo(n, to.ID)
	}
	return Its(n).Incarnation
}

// Named says whether a sender has this name for any receiver.
func (w *Cluster) Named(n *world.Node, us effects.Incarnation) bool {
	return IsNameOf(n, us) && slices.ContainsFunc(w.Nodes[:w.Ranks],
		func(to *world.Node) bool { return nameTo(n, to.ID) == us })
}

// Believes says whether a message that comes from that peer, as it says, also names n as only that peer knows it:
// anything else is a stranger's, whose words change nothing. To begin like n's name is not enough: strangers
// change real messages anywhere.
func Believes(n *world.Node, peer, us effects.Incarnation) bool {
	return IsNameOf(n, us) && nameFor(n, peer) == us
}

// nameFor is the name that this life of n has for who called it. It takes two hashes, so it is made once for each.
func nameFor(n *world.Node, peer effects.Incarnation) effects.Incarnation {
	names := Its(n).callers
	name, made := names[peer]
	if !made {
		name = Its(n).Key.For(peer)
		names[peer] = name
	}
	return name
}

// nameTo is the name that this life of n has for a node that it may call. It takes two hashes, and is asked for with
// every message, so it is made once.
func nameTo(n *world.Node, to int32) effects.Incarnation {
	for len(Its(n).names) <= int(to) {
		Its(n).names = append(Its(n).names, effects.Incarnation{})
	}
	if Its(n).names[to] == (effects.Incarnation{}) {
		init, alloc := world.AddressOf(to, effects.ChannelInit), world.AddressOf(to, effects.ChannelAlloc)
		Its(n).names[to] = Its(n).Key.To(init.Host, init.Port, alloc.Port)
	}
	return Its(n).names[to]
}

// disguised is a message that only its sender may say, as a stranger would say it in its name: commits, aborts, offers,
// withdrawals and renewals, with what everybody knows of one end or of both. It must change nothing (S3, S8, S24).
// Others are as they are. to is to whom such a message was said; one in which both names would be right is not to be
// sent.
func (w *Cluster) disguised(b []byte, d draw.Of) (_ []byte, to effects.Incarnation, sent bool) {
	var m protocol.AllocRequest
	if m.Decode(b, &WireLimits) == nil && len(m.Ext.Commit)+len(m.Ext.Abort) > 0 {
		to = effects.Incarnation(m.Ext.To)
		sent = m.HasExt && w.disguise(&m.Ext.Incarnation, &m.Ext.To, d)
		m.Ext.Version = protoVersion
		return m.Append(nil), to, sent
	}
	var o protocol.PullReadyNotif
	if o.Decode(b, &WireLimits) == nil {
		to = effects.Incarnation(o.Ext.To)
		sent = o.HasExt && w.disguise(&o.Ext.Incarnation, &o.Ext.To, d)
		o.Ext.Version = protoVersion
		return o.Append(nil), to, sent
	}
	var q protocol.CacheQueryRequest
	if q.Decode(b, &WireLimits) == nil && q.HasExt {
		to = effects.Incarnation(q.Ext.To)
		sent = w.disguise(&q.Ext.Incarnation, &q.Ext.To, d)
		q.Ext.Version = protoVersion
		return q.Append(nil), to, sent
	}
	var g protocol.AscendBatchedLookupAndGetMsg
	if g.Decode(b, &WireLimits) == nil && g.HasExt {
		to = effects.Incarnation(g.Ext.To)
		sent = w.disguise(&g.Ext.Incarnation, &g.Ext.To, d)
		g.Ext.Version = protoVersion
		return g.Append(nil), to, sent
	}
	var f protocol.AscendBatchedLookupAndGetDoneMsg
	if f.Decode(b, &WireLimits) == nil && f.HasExt {
		to = effects.Incarnation(f.Ext.To)
		sent = w.disguise(&f.Ext.Incarnation, &f.Ext.To, d)
		f.Ext.Version = protoVersion
		return f.Append(nil), to, sent
	}
	var r protocol.RenewRequest
	if r.Decode(b, &WireLimits) == nil {
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
func (w *Cluster) forgeWord(n *world.Node, d draw.Of) bool {
	var ids []effects.GrantID
	for id, g := range n.Grants {
		if !g.Bearer() && n.Open(g) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return false
	}
	slices.Sort(ids)
	g := n.Grants[ids[d.Below(uint64(len(ids)))]]
	layout := w.Plan.Rank.Layout
	m := protocol.AllocRequest{Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype, HasExt: true}
	m.Ext = protocol.AllocExt{Version: protoVersion, Incarnation: protocol.UUID(g.Peer),
		To: protocol.UUID(nameFor(n, g.Peer)), Operation: 1}
	if word := []uint64{uint64(g.ID)}; d.Again().Permille(500) {
		m.Ext.Commit = word
	} else {
		m.Ext.Abort = word
	}
	if !w.disguise(&m.Ext.Incarnation, &m.Ext.To, d.Again().Again()) {
		return false
	}
	w.Result.Fault(plan.FaultHostile)
	w.Stranger(n, effects.ChannelAlloc, m.Append(nil))
	return true
}

// disguise replaces the name that a stranger does not know, or both, by what everybody may know of that life. It
// returns false if what remains would be the word of one who knows both.
func (w *Cluster) disguise(from, to *protocol.UUID, d draw.Of) bool {
	which := d.Below(3)
	was := [2]protocol.UUID{*from, *to}
	if which != 1 {
		*from = protocol.UUID(w.shown(effects.Incarnation(*from)))
	}
	if which != 2 {
		*to = protocol.UUID(w.shown(effects.Incarnation(*to)))
	}
	return was != [2]protocol.UUID{*from, *to} || w.LifeOf(effects.Incarnation(*to)) == nil
}
