package pd

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A stranger comes to a node and speaks in the name of others. What it says is drawn.
type stranger struct {
	w *Cluster
	n *world.Node // to whom it comes
	d draw.Of
}

// address sends a node a real message, changed, on any of its channels. What can still be read, and only its sender may
// say, is said in that one's name, as far as a stranger can know it.
func (s stranger) address() {
	w, n, d := s.w, s.n, s.d
	if len(w.Overheard) == 0 || len(n.Listens) == 0 {
		return
	}
	if n.Receives() && !w.Flows.Alone() && d.Again().Again().Again().Again().Permille(400) && s.forgeWord() {
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
	if w.Flows.Alone() && port == effects.ChannelAlloc {
		port = effects.ChannelRegister // Nobody listens there.
	}
	w.Result.Fault(plan.FaultHostile)
	w.Stranger(n, port, said)
}

// harms is where a false word would do harm to a node.
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

// shown is what a stranger takes for a name: the identity that the life shows to all, or the name itself where
// nobody lives by it.
func (s stranger) shown(name effects.Incarnation) effects.Incarnation {
	if n := s.w.LifeOf(name); n != nil {
		return Its(n).Incarnation
	}
	return name
}

// known is the name that a sender has for a receiver.
func (s stranger) known(receiver effects.Incarnation) effects.Incarnation {
	if to := s.w.LifeOf(receiver); to != nil {
		return nameTo(s.n, to.ID)
	}
	return Its(s.n).Incarnation
}

// disguised is a message that only its sender may say, as a stranger would say it in its name, with what everybody
// knows of one end or of both. It must change nothing (S3, S8, S24). Others are as they are. to is to whom such a
// message was said; one in which both names would be right is not to be sent.
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

// disguise replaces the name that a stranger does not know, or both, by what everybody may know of that life. It
// returns false if what remains would be the word of one who knows both.
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

// forgeWord tells a receiver, as a stranger who has heard of one of its grants, that its writer is done, or will not
// write. It says false if there is none.
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

// forgeEnd tells a receiver that a request has ended which a sender is about to send, or sends: in that sender's public
// name, in a name of its own after a handshake, or in none. It says false if there is no such request, or the receiver's engine is not
// told how requests end. Nothing that came for the request may be lost by it (L9).
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

// forge tells a sender that one of its offers has ended: without our fields, as the name that everybody may know of its
// reader, to the one of the sender, or of another grant. What its reader has not said must change nothing (S8). Offers
// to plain readers are left alone: whoever can reach the port and knows their names can end them.
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
