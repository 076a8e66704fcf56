package world

import (
	"encoding/binary"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// commTarget is the target's end of all links to one incarnation of a node, and its record of revocations.
type commTarget struct {
	m       communicator.Target
	out     communicator.TargetEffects `snap:"scratch"`
	revokes []CommRevoke               // all revocations, by number-1
	book    []CommRevoke               // the newest revocations, which are reported to peers
	forgot  []effects.Incarnation      // peers of which older revocations are no longer recorded
}

// CommRevoke is the revocation of a grant.
type CommRevoke struct {
	Grant effects.GrantID
	peer  effects.Incarnation
	Waits []commName // epochs that could reach the pool at that time
}

// commName identifies an epoch of a link.
type commName struct{ Link, Epoch uint64 }

// newestRevokesMax is the number of revocations that are recorded individually. The number is small, so that runs reach
// the limit.
const bookMax = 4

// commLimits returns the limits of each target.
func commLimits() communicator.Limits {
	return communicator.Limits{Sessions: 16, PerPeer: 4, Reserved: 8, Epochs: 8, Revocations: 1 << 16}
}

func newCommTarget(seed uint64) *commTarget {
	return &commTarget{m: communicator.NewTarget(commLimits(), seed)}
}

// tell passes an event to a node's target and carries out the result.
func (x *commTarget) tell(w *World, n *Node, ev communicator.TargetEvent) {
	x.out.Reset()
	x.m.Step(&ev, &x.out)
	for _, name := range x.out.SendFenced {
		w.linkBy(name.Session).sayInitiator(w, communicator.MessageFenced, name.Epoch, 0, nil)
	}
	for _, name := range x.out.RemoveEnds {
		l := w.linkBy(name.Session)
		e := l.Comm.Epoch(name.Epoch)
		if e.leaves = true; e.made {
			l.leads(w, n, e)
		}
	}
	for _, id := range x.out.LostLinks {
		l := w.linkBy(id)
		n.inOrder(w, 0, Delivery{Kind: KindLinkLost, B: uint64(l.From), C: uint64(l.FromLife)})
	}
	for _, name := range x.out.StartMargins {
		w.ForNode(n, commMargin, Delivery{Kind: kindCommMargin, A: w.linkBy(name.Session).ID, B: name.Epoch})
	}
	for _, number := range x.out.DoneRevocations {
		r := &x.revokes[number-1]
		OnEpochsRevoked.Report(&w.Panel, n.ID, EpochsRevoked{n, r})
		n.Grants[r.Grant].Gone = true
		n.inOrder(w, 0, Delivery{Kind: KindRevoked, A: uint64(r.Grant)})
	}
	for _, id := range x.out.CloseConns {
		if l := w.linkBy(id); !l.Comm.closed && w.Lives(l.From, l.FromLife) {
			w.ForNode(w.Nodes[l.From], l.commDraw(w).Heavy(w.Setting.Net), Delivery{Kind: kindCommLost, A: l.ID})
		}
	}
}

// linkBy returns the link of a session.
func (w *World) linkBy(id communicator.SessionID) *Link {
	return w.Links[binary.LittleEndian.Uint64(id[:])-1]
}

// sayInitiator sends a message to the initiator, after all earlier messages.
func (l *Link) sayInitiator(w *World, word communicator.MessageKind, epoch uint64, code effects.Code, body []byte) {
	c := l.Comm
	if c.closed || c.cut || !w.Lives(l.From, l.FromLife) {
		return
	}
	c.heard = max(c.heard, w.Now+int64(l.commDraw(w).Heavy(w.Setting.Net)))
	w.Queue.Push(c.heard, Delivery{Kind: KindCommHear, Node: l.From, Life: l.FromLife, A: l.ID, B: epoch,
		C: uint64(code)<<8 | uint64(word), Body: body})
}

// targetHears passes a message of an initiator to the target's machine.
func (l *Link) targetHears(w *World, n *Node, word communicator.MessageKind, epoch uint64) {
	ev := communicator.TargetEvent{Session: session(l), Epoch: epoch}
	switch word {
	case communicator.MessageFenced:
		ev.Kind = communicator.InitiatorFenced
	case communicator.MessageGone:
		ev.Kind = communicator.InitiatorGone
	case communicator.MessageOffer:
		ev.Kind = communicator.EpochOffered
		n.target.tell(w, n, ev)
		out := &n.target.out
		if out.NewerEpoch != 0 {
			w.Fail("C3", "node %d offers epoch %d of link %d after %d",
				w.Nodes[l.From].It(), epoch, oracle.Link(l.ID), out.NewerEpoch)
			return
		}
		if out.MakeEnd {
			e := l.Comm.Epoch(epoch)
			e.Begun = true
			w.ForNode(n, l.commDraw(w).Heavy(2*w.Setting.Net), Delivery{Kind: kindCommMade, A: l.ID, B: epoch})
		}
		l.sayInitiator(w, 0, epoch, out.Code, n.target.listed(w, l.Us))
		return
	}
	n.target.tell(w, n, ev)
}

// listed returns the body of an accept, which lists the revoked grants of a peer.
func (x *commTarget) listed(w *World, peer effects.Incarnation) []byte {
	more := byte(0)
	if slices.Contains(x.forgot, peer) {
		more = 1
	}
	body := append(w.Body(nil), more)
	for _, r := range x.book {
		if r.peer == peer {
			body = binary.LittleEndian.AppendUint64(body, uint64(r.Grant))
		}
	}
	return body
}

// made records that the target's end of an epoch is created, or cannot be created.
func (l *Link) made(w *World, n *Node, e *CommEpoch) {
	switch {
	case w.Struck(plan.FaultImport, l.subject(), 1<<32|e.Number):
		e.failed, e.gone, e.led = true, true, true
		n.target.tell(w, n, communicator.TargetEvent{
			Kind: communicator.EndFinished, Session: session(l), Epoch: e.Number, Failed: true, Gone: true,
		})
	default:
		if e.made = true; e.leaves {
			l.leads(w, n, e)
		}
	}
	l.met(w, e)
}

// leads destroys the target's end, which takes time.
func (l *Link) leads(w *World, n *Node, e *CommEpoch) {
	at := l.commDraw(w).Heavy(2 * w.Setting.Net)
	if s, yes := w.Strikes(plan.FaultRevokeHeldUp, l.subject(), 1<<32|e.Number); yes {
		at += s.Span(0, 2*effects.Second)
	}
	w.ForNode(n, at, Delivery{Kind: kindCommLed, A: l.ID, B: e.Number})
}

// led records that the target's end is destroyed, or cannot be destroyed.
func (l *Link) led(w *World, n *Node, e *CommEpoch) {
	e.led, e.gone = true, e.lied || !w.Struck(plan.FaultEndStays, l.subject(), e.Number)
	if e.gone && !l.Comm.mapped {
		l.outOfReach(w, e)
	}
	n.target.tell(w, n, communicator.TargetEvent{
		Kind: communicator.EndFinished, Session: session(l), Epoch: e.Number, Gone: e.gone,
	})
	l.needsOperator(w, n)
}

// channelEnds records how the connection of a link ended.
func (l *Link) channelEnds(w *World, n *Node, proves bool) {
	l.Comm.heardEnd = true
	l.Comm.unproven = !proves
	n.target.tell(w, n, communicator.TargetEvent{Kind: communicator.LinkFailed, Session: session(l)})
	n.target.tell(w, n, communicator.TargetEvent{Kind: communicator.ChannelEnded, Session: session(l), ProvesGone: proves})
	l.needsOperator(w, n)
}

// needsOperator schedules a restart of the process if nothing will ever prove that an epoch is over.
func (l *Link) needsOperator(w *World, n *Node) {
	c := l.Comm
	if !c.heardEnd || !c.unproven {
		return
	}
	for _, e := range c.Epochs {
		if e.Begun && e.led && !e.gone {
			n.callOperator(w)
			return
		}
	}
}

// expel revokes a grant. The peer is expelled from its epochs, and the revocation is recorded for the peer's next
// epochs.
func (g *Grant) expel(w *World, n *Node) {
	x := n.target
	r := CommRevoke{Grant: g.ID, peer: g.Peer}
	for _, l := range w.Links {
		if l.Comm == nil || l.Target != n.Pool || l.Us != g.Peer {
			continue
		}
		for _, e := range l.Comm.Epochs {
			if e.Begun && !e.Over {
				r.Waits = append(r.Waits, commName{l.ID, e.Number})
			}
		}
	}
	x.revokes = append(x.revokes, r)
	if g.Peer != (effects.Incarnation{}) {
		if len(x.book) == bookMax {
			if !slices.Contains(x.forgot, x.book[0].peer) {
				x.forgot = append(x.forgot, x.book[0].peer)
			}
			x.book = append(x.book[:0], x.book[1:]...)
		}
		x.book = append(x.book, CommRevoke{Grant: g.ID, peer: g.Peer})
	}
	n.target.tell(w, n, communicator.TargetEvent{
		Kind: communicator.GrantRevoked, Revocation: uint64(len(x.revokes)), Peer: g.Peer,
	})
}
