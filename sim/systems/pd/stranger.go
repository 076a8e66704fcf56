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
	d draw.Of
}

// address sends a changed copy of a real message to a node, on any of the node's channels. If the copy can still be
// decoded and only the sender may send the message, the copy carries the sender's public name, because a stranger knows
// only that name.
func (s stranger) address() {
	w, n, d := s.w, s.n, s.d
	if len(w.Overheard) == 0 || len(n.Listens) == 0 {
		return
	}
	if n.Receives() && w.Flows.Alone() == nil && d.Again().Again().Again().Again().Permille(400) && s.forgeWord() {
		return
	}
	if n.Receives() && d.Again().Again().Again().Again().Again().Permille(200) && s.forgeEnd() {
		return
	}
	as := d.Again().Again().Again()
	b := append([]byte(nil), w.Overheard[d.Below(uint64(len(w.Overheard)))]...)
	port := w.AnyPort(n, d.Again().Again())
	said, word, name, sent := s.disguised(b, as)
	if to := w.LifeOf(name); to == nil || as.Again().Permille(300) {
		said, _, _, sent = s.disguised(world.Mutate(b, d.Again()), as)
	} else {
		n, port = to, harms(word, to)
	}
	if !sent {
		return
	}
	if w.Flows.Alone() != nil && port == effects.ChannelAlloc {
		port = effects.ChannelRegister // no rank listens on the allocation channel in such a world
	}
	w.Result.Fault(plan.FaultHostile)
	w.Stranger(n, port, said)
}

// harms returns the channel on which a false message of this kind would do harm to the node.
func harms(word *Word, to *world.Node) effects.Channel {
	if word != nil && word.Harm != nil {
		if on, ok := word.Harm(to); ok {
			return on
		}
	}
	if to.Sends() {
		return effects.ChannelInit
	}
	return effects.ChannelAlloc
}

// shown returns the name that a stranger uses for an incarnation: the public identity of the incarnation, or the name
// itself if no running incarnation uses it.
func (s stranger) shown(name effects.Incarnation) effects.Incarnation {
	if n := s.w.LifeOf(name); n != nil {
		return Its(n).Incarnation
	}
	return name
}

// known returns the name that the sender s.n uses towards a receiver, or the sender's public identity if the receiver
// is not running.
func (s stranger) known(receiver effects.Incarnation) effects.Incarnation {
	if to := s.w.LifeOf(receiver); to != nil {
		return nameTo(s.n, to.ID)
	}
	return Its(s.n).Incarnation
}

// disguised rewrites a message that only the sender may send, with the publicly known name of the sender, of the
// receiver or of both, as a stranger would send the message. The message must change nothing (S3, S8, S24). A message
// that anyone may send is returned unchanged. The result to is the addressee of the original message. If sent is false,
// both names would be right, and the message must not be sent.
func (s stranger) disguised(b []byte, d draw.Of) (_ []byte, word *Word, to effects.Incarnation, sent bool) {
	word, m := s.w.Flows.read(b, d)
	if word == nil {
		return b, nil, to, true
	}
	if m.From != nil {
		to = effects.Incarnation(*m.To)
		sent = s.disguise(m.From, m.To, d)
	}
	return m.Write(), word, to, sent
}

// disguise replaces one or both of the names, which a stranger does not know, by the public identity of the
// incarnation. The result is false if the message still has both secret names, so that a stranger could not send the
// message.
func (s stranger) disguise(from, to *protocol.UUID, d draw.Of) bool {
	which := d.Below(3)
	was := [2]protocol.UUID{*from, *to}
	if which != 1 {
		*from = protocol.UUID(s.shown(effects.Incarnation(*from)))
	}
	if which != 2 {
		*to = protocol.UUID(s.shown(effects.Incarnation(*to)))
	}
	return was != [2]protocol.UUID{*from, *to} || s.w.LifeOf(effects.Incarnation(*to)) == nil
}

// forgeWord sends a receiver a commit or an abort of a write grant of the receiver, as a stranger that has learned the
// grant's id. The result is false if there is no such grant.
func (s stranger) forgeWord() bool {
	w, n, d := s.w, s.n, s.d
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
	m.Ext = protocol.AllocExt{Version: ProtoVersion, Incarnation: protocol.UUID(g.Peer),
		To: protocol.UUID(nameFor(n, g.Peer)), Operation: 1}
	if word := []uint64{uint64(g.ID)}; d.Again().Permille(500) {
		m.Ext.Commit = word
	} else {
		m.Ext.Abort = word
	}
	if !s.disguise(&m.Ext.Incarnation, &m.Ext.To, d.Again().Again()) {
		return false
	}
	w.Result.Fault(plan.FaultHostile)
	w.Stranger(n, effects.ChannelAlloc, m.Append(nil))
	return true
}

// forgeEnd sends a receiver a false end-of-request message about a request that a sender is about to send or is
// sending. The message carries the sender's public identity, a name of the stranger's own after a handshake, or no
// name. forgeEnd returns false if there is no such request, or if the sender's engine does not report how requests
// end. No chunk that arrived for the request may be lost because of the message (L9).
func (s stranger) forgeEnd() bool {
	w, n, d := s.w, s.n, s.d.Again()
	var open []*Job
	for i := range w.Jobs {
		if j := &w.Jobs[i]; j.Said[Tells] && j.Receiver == n.ID && j.begun {
			open = append(open, j)
		}
	}
	if len(open) == 0 {
		return false
	}
	j := open[d.Below(uint64(len(open)))]
	m := protocol.EndRequest{Version: ProtoVersion, Operation: d.Again().Below(1 << 20), Request: j.Name,
		Code: uint32(effects.Faulted)}
	switch as := d.Again().Again(); as.Below(3) {
	case 0:
		m.Incarnation = protocol.UUID(Its(w.Nodes[j.Sender]).Incarnation)
		m.To = protocol.UUID(Its(n).Incarnation)
	case 1:
		me := s.ownName()
		s.greet(1<<52|uint64(len(w.Requests)), effects.ChannelInit, hello(n, me, nil))
		m.Incarnation, m.To = protocol.UUID(me), protocol.UUID(nameFor(n, me))
	}
	w.Result.Fault(plan.FaultHostile)
	w.Stranger(n, effects.ChannelAlloc, m.Append(nil))
	return true
}

// forge sends a sender a false done message for an offer of that sender: without our fields, with the public identity
// of the reader, with the public identity of the sender, or for another grant. A done message that the reader did not
// send must change nothing (S8). Offers to plain readers are not forged, because any process that can reach the port
// and knows the names can end these offers.
func (s stranger) forge() {
	w, n, d := s.w, s.n, s.d
	var offers []*world.Grant
	for _, g := range n.Pool.Lent {
		if w.Standing(n, g) && !g.Bearer() && g.Loan.Pull != (protocol.PullID{}) {
			offers = append(offers, g)
		}
	}
	if len(offers) == 0 {
		return
	}
	w.Result.Fault(plan.FaultForged)
	g := offers[d.Below(uint64(len(offers)))]
	m := protocol.PullDoneSignal{PullID: g.Loan.Pull, HasExt: true, Ext: protocol.PullDoneExt{
		Version: ProtoVersion, Incarnation: protocol.UUID(g.Peer), To: protocol.UUID(s.known(g.Peer)),
		Grant: uint64(g.ID)}}
	switch d.Again().Below(4) {
	case 0:
		m.HasExt, m.Ext = false, protocol.PullDoneExt{}
	case 1:
		m.Ext.Incarnation = protocol.UUID(s.shown(g.Peer))
	case 2:
		m.Ext.To = protocol.UUID(Its(n).Incarnation)
	case 3:
		m.Ext.Grant++
	}
	w.Stranger(n, effects.ChannelDone, m.Append(nil))
}
