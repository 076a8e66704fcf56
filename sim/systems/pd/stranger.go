package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A stranger is an unknown process that sends messages to a node, mostly in the name of existing nodes. The messages
// are drawn.
type stranger struct {
	w *Cluster
	n *world.Node // the node that receives the messages
	d draw.Value
	// What the stranger proves. A stranger that proves an identity may know secret names: they were overheard before
	// security was turned on.
	proof world.StrangerProof
}

// sendChangedCopy sends a changed copy of a real message to a node, on any of the node's channels. If the copy can
// still be decoded and only the sender may send the message, the copy carries the sender's public name, because a
// stranger knows only that name.
func (s stranger) sendChangedCopy() {
	w, n, d := s.w, s.n, s.d
	if len(w.Overheard) == 0 || len(n.Listens) == 0 {
		return
	}
	if n.IsReceiver() && w.Flows.ExclusivePart() == nil && d.Rehash().Rehash().Rehash().Rehash().ChancePermille(400) && s.forgeCommit() {
		return
	}
	if n.IsReceiver() && d.Rehash().Rehash().Rehash().Rehash().Rehash().ChancePermille(200) && s.forgeEndOfRequest() {
		return
	}
	nameDraw := d.Rehash().Rehash().Rehash()
	if len(w.SourcePlan.Topology.Identities) > 0 && nameDraw.Rehash().Rehash().Rehash().ChancePermille(200) && s.forgeHello() {
		return
	}
	b := append([]byte(nil), w.Overheard[d.Below(uint64(len(w.Overheard)))]...)
	if len(w.SourcePlan.Topology.Identities) > 0 {
		s.repeatWithoutRole(draw.Hash(uint64(nameDraw), draw.Noise, 5, 0))
	}
	port := w.PickChannel(n, d.Rehash().Rehash())
	message, kind, name, sent := s.disguiseMessage(b, nameDraw)
	if to := w.NodeOfIncarnation(name); to == nil || nameDraw.Rehash().ChancePermille(300) {
		message, _, _, sent = s.disguiseMessage(world.DamageMessage(b, d.Rehash()), nameDraw)
	} else {
		n, port = to, harmChannel(kind, to)
	}
	if !sent {
		return
	}
	if w.Flows.ExclusivePart() != nil && port == effects.ChannelAlloc {
		port = effects.ChannelRegister // no rank listens on the allocation channel in such a world
	}
	w.Result.CountFault(plan.FaultHostileMessage)
	s.n = n
	s.send(port, message)
}

// harmChannel returns the channel on which a false message of this kind would do harm to the node.
func harmChannel(kind *SenderMessage, to *world.Node) effects.Channel {
	if kind != nil && kind.HarmChannel != nil {
		if channel, ok := kind.HarmChannel(to); ok {
			return channel
		}
	}
	if to.IsSender() {
		return effects.ChannelInit
	}
	return effects.ChannelAlloc
}

// publicName returns the name that a stranger uses for an incarnation: the public identity of the incarnation, or the
// name itself if no running incarnation uses it.
func (s stranger) publicName(name effects.Incarnation) effects.Incarnation {
	if n := s.w.NodeOfIncarnation(name); n != nil {
		return InfoOf(n).Incarnation
	}
	return name
}

// nameForReceiver returns the name that the sender s.n uses towards a receiver, or the sender's public identity if the
// receiver is not running.
func (s stranger) nameForReceiver(receiver effects.Incarnation) effects.Incarnation {
	if to := s.w.NodeOfIncarnation(receiver); to != nil {
		return nameForCallee(s.n, to.ID)
	}
	return InfoOf(s.n).Incarnation
}

// disguiseMessage rewrites a message that only the sender may send, with the publicly known name of the sender, of the
// receiver or of both, as a stranger would send the message. The message must change nothing (S3, S8, S24). A message
// that anyone may send is returned unchanged. The result to is the addressee of the original message. If sent is false,
// both names would be right, and the message must not be sent.
func (s stranger) disguiseMessage(b []byte, d draw.Value) (_ []byte, kind *SenderMessage, to effects.Incarnation, sent bool) {
	kind, m := s.w.Flows.decodeSenderMessage(b, d)
	if kind == nil {
		return b, nil, to, true
	}
	if m.From != nil {
		to = effects.Incarnation(*m.To)
		sent = s.disguiseNames(m.From, m.To, d)
	}
	return m.Encode(), kind, to, sent
}

// disguiseNames replaces one or both of the names, which a stranger does not know, by the public identity of the
// incarnation. The result is false if the message still has both secret names, so that a stranger could not send the
// message.
func (s stranger) disguiseNames(from, to *protocol.UUID, d draw.Value) bool {
	if s.actsForOther(effects.Incarnation(*from), effects.Incarnation(*to)) &&
		d.Rehash().Rehash().Rehash().Rehash().Rehash().ChancePermille(500) {
		return true // Both names are right, and the identity is not (S29).
	}
	choice := d.Below(3)
	original := [2]protocol.UUID{*from, *to}
	if choice != 1 {
		*from = protocol.UUID(s.publicName(effects.Incarnation(*from)))
	}
	if choice != 2 {
		*to = protocol.UUID(s.publicName(effects.Incarnation(*to)))
	}
	return original != [2]protocol.UUID{*from, *to} || s.w.NodeOfIncarnation(effects.Incarnation(*to)) == nil
}

// forgeCommit sends a receiver a commit or an abort of a write grant of the receiver, as a stranger that has learned
// the grant's id. The result is false if there is no such grant.
func (s stranger) forgeCommit() bool {
	w, n, d := s.w, s.n, s.d
	var ids []effects.GrantID
	for id, g := range n.Grants {
		if !g.IsBearer() && n.AllowsStores(g) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return false
	}
	slices.Sort(ids)
	g := n.Grants[ids[d.Below(uint64(len(ids)))]]
	layout := w.Setup.Rank.Layout
	m := protocol.AllocRequest{Format: layout.Format, Shape: layout.Shape, Dtype: layout.Dtype, HasExt: true}
	m.Ext = protocol.AllocExt{Version: ProtoVersion, Incarnation: protocol.UUID(g.Peer),
		To: protocol.UUID(nameForCaller(n, g.Peer)), Operation: 1}
	if grants := []uint64{uint64(g.ID)}; d.Rehash().ChancePermille(500) {
		m.Ext.Commit = grants
	} else {
		m.Ext.Abort = grants
	}
	if !s.disguiseNames(&m.Ext.Incarnation, &m.Ext.To, d.Rehash().Rehash()) {
		return false
	}
	w.Result.CountFault(plan.FaultHostileMessage)
	s.send(effects.ChannelAlloc, m.Append(nil))
	return true
}

// forgeEndOfRequest sends a receiver a false end-of-request message about a request that a sender is about to send or
// is sending. The message carries the sender's public identity, a name of the stranger's own after a handshake, or no
// name. forgeEndOfRequest returns false if there is no such request, or if the sender's engine does not report how
// requests end. No chunk that arrived for the request may be lost because of the message (L9).
func (s stranger) forgeEndOfRequest() bool {
	w, n, d := s.w, s.n, s.d.Rehash()
	var candidates []*Job
	for i := range w.Jobs {
		if j := &w.Jobs[i]; j.Flags[ReportsEnd] && j.Receiver == n.ID && j.started {
			candidates = append(candidates, j)
		}
	}
	if len(candidates) == 0 {
		return false
	}
	j := candidates[d.Below(uint64(len(candidates)))]
	m := protocol.EndRequest{Version: ProtoVersion, Operation: d.Rehash().Below(1 << 20), Request: j.Name,
		Code: uint32(effects.Faulted), Tenant: uint64(s.tenantOfEnd(j, draw.Hash(uint64(d), draw.Noise, 7, 0)))}
	switch nameDraw := d.Rehash().Rehash(); nameDraw.Below(3) {
	case 0:
		m.Incarnation = protocol.UUID(InfoOf(w.Nodes[j.Sender]).Incarnation)
		m.To = protocol.UUID(InfoOf(n).Incarnation)
	case 1:
		name := s.drawName()
		s.deliverMessage(s.conn(), effects.ChannelInit, helloMessage(n, name, nil))
		m.Incarnation, m.To = protocol.UUID(name), protocol.UUID(nameForCaller(n, name))
	}
	w.Result.CountFault(plan.FaultHostileMessage)
	s.send(effects.ChannelAlloc, m.Append(nil))
	return true
}

// tenantOfEnd draws the tenant that a false end-of-request message states: that of the job, or another one, under which
// nothing of the job may end.
func (s stranger) tenantOfEnd(j *Job, d draw.Value) effects.Tenant {
	if d.ChancePermille(700) {
		return j.Tenant()
	}
	return world.TenantOf(uint32(d.Rehash().Below(plan.TenantsMax + 1)))
}

// forgeDone sends a sender a false done message for an offer of that sender: without our fields, with the public
// identity of the reader, with the public identity of the sender, or for another grant. A done message that the reader
// did not send must change nothing (S8). Offers to plain readers are not forged, because any process that can reach the
// port and knows the names can end these offers.
func (s stranger) forgeDone() {
	w, n, d := s.w, s.n, s.d
	var offers []*world.Grant
	for _, g := range n.Pool.ReadLeases {
		if w.IsLeaseLive(n, g) && !g.IsBearer() && g.Lease.OfferID != (protocol.PullID{}) {
			offers = append(offers, g)
		}
	}
	if len(offers) == 0 {
		return
	}
	w.Result.CountFault(plan.FaultDoneForged)
	g := offers[d.Below(uint64(len(offers)))]
	m := protocol.PullDoneSignal{PullID: g.Lease.OfferID, HasExt: true, Ext: protocol.PullDoneExt{
		Version: ProtoVersion, Incarnation: protocol.UUID(g.Peer), To: protocol.UUID(s.nameForReceiver(g.Peer)),
		Grant: uint64(g.ID)}}
	switch d.Rehash().Below(4) {
	case 0:
		m.HasExt, m.Ext = false, protocol.PullDoneExt{}
	case 1:
		m.Ext.Incarnation = protocol.UUID(s.publicName(g.Peer))
	case 2:
		m.Ext.To = protocol.UUID(InfoOf(n).Incarnation)
	case 3:
		m.Ext.Grant++
	}
	s.send(effects.ChannelDone, m.Append(nil))
}
