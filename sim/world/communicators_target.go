package world

import (
	"encoding/binary"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/communicator"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// commTarget is the target's end of all links to one incarnation of a node, and its record of revocations.
type commTarget struct {
	machine        communicator.Target
	limits         communicator.Limits        `snap:"share"`
	links          []targetLink               // in the order of their admission
	out            communicator.TargetEffects `snap:"scratch"`
	revokes        []CommRevoke               // all revocations, by number-1
	newestRevokes  []CommRevoke               // the newest revocations, which are reported to peers
	forgottenPeers []effects.Incarnation      // peers of which older revocations are no longer recorded
}

// CommRevoke is the revocation of a grant.
type CommRevoke struct {
	Grant    effects.GrantID
	peer     effects.Incarnation
	WaitsFor []epochID // epochs that could reach the pool at that time
}

// epochID identifies an epoch of a link.
type epochID struct{ Link, Epoch uint64 }

// newestRevokesMax is the number of revocations that are recorded individually. The number is small, so that runs reach
// the limit.
const newestRevokesMax = 4

// commLimits returns the limits of the targets of a world. Most are so small that links and epochs which nothing has
// proven to be over fill them now and then; a process that has no use for such links finds room nevertheless.
func commLimits(w *World) communicator.Limits {
	at := func(n uint64) draw.Value { return draw.Hash(w.Seed, draw.Communicator, limitsDraw, n) }
	if draw.IsFixed(w.Seed) || at(0).ChancePermille(300) {
		return communicator.Limits{Sessions: 16, PerPeer: 4, Reserved: 8, Epochs: 8, Revocations: 1 << 16}
	}
	x := communicator.Limits{
		Sessions: w.SourcePlan.NodeCount() + at(1).Between(1, 8), PerPeer: at(2).Between(1, 4), Reserved: at(3).Between(2, 8),
		Epochs: at(4).Between(1, 4), Revocations: 1 << 16,
	}
	if at(5).ChancePermille(500) { // An address has its share before its peer has all its links, or the table is full.
		x.Sessions, x.PerPeer, x.Reserved = w.SourcePlan.NodeCount()+at(6).Between(0, 2), 4, 2
	}
	return x
}

// commAddress returns the address from which a node's links come. In some worlds two nodes have the same address, which
// then has links of different peers, if the address may have more links than that.
func commAddress(w *World, n *Node) communicator.Address {
	l := commLimits(w)
	if !draw.IsFixed(w.Seed) && l.Sessions-l.Sessions/l.Reserved > 2 &&
		draw.Hash(w.Seed, draw.Communicator, limitsDraw, 7).ChancePermille(400) {
		return communicator.Address{Bits: uint8(n.ID / 2)}
	}
	return communicator.Address{Bits: uint8(n.ID)}
}

func newCommTarget(w *World) *commTarget {
	limits := commLimits(w)
	return &commTarget{machine: communicator.NewTarget(limits, w.Seed), limits: limits}
}

// A targetLink is a link that a target admitted and that may still reach the pool.
type targetLink struct {
	session communicator.SessionID
	peer    effects.Incarnation
	address communicator.Address
	lost    bool
	epochs  int // epochs that are not over
}

var (
	checkAdmission = oracle.NewCheck("S17", "links of communicators that are admitted or refused")
	checkEpochRoom = oracle.NewCheck("S17", "epochs of a link that are accepted or refused")
)

// verifyLimits verifies the decision about a link or an epoch against the limits, and records what the step changed.
func (x *commTarget) verifyLimits(w *World, n *Node, ev *communicator.TargetEvent) {
	at := func(id communicator.SessionID) *targetLink {
		if i := slices.IndexFunc(x.links, func(l targetLink) bool { return l.session == id }); i >= 0 {
			return &x.links[i]
		}
		return nil
	}
	for _, over := range x.out.OverEpochs {
		if l := at(over.Session); l != nil {
			l.epochs--
		}
	}
	if ev.Kind == communicator.LinkArrived {
		x.verifyAdmission(w, n, ev)
	}
	if l := at(ev.Session); ev.Kind == communicator.EpochOffered && l != nil && x.out.NewerEpoch == 0 {
		w.CountJudged(checkEpochRoom)
		switch isFull := l.epochs >= x.limits.Epochs; {
		case x.out.MakeEnd && isFull, x.out.Code == effects.TooMany && !isFull:
			w.FailCheck(checkEpochRoom, "node %d answers %v to an epoch of a link with %d epochs, and the limit is %d", n.AsSubject(), x.out.Code,
				l.epochs, x.limits.Epochs)
		case x.out.MakeEnd:
			l.epochs++
		}
	}
	for _, id := range x.out.LostLinks {
		if l := at(id); l != nil {
			l.lost = true
		}
	}
	x.links = slices.DeleteFunc(x.links, func(l targetLink) bool { return slices.Contains(x.out.EndedSessions, l.session) })
}

// verifyAdmission verifies that a link is admitted if there is room in the table, for its peer and for its address, and
// otherwise refused for the reason that holds. If the peer has all its links, its oldest one ends.
func (x *commTarget) verifyAdmission(w *World, n *Node, ev *communicator.TargetEvent) {
	samePeer, sameAddress, want := 0, 0, communicator.Admitted
	oldest := -1
	for i := range x.links {
		l := &x.links[i]
		if l.address == ev.From {
			sameAddress++
		}
		if l.peer == ev.Peer {
			if samePeer++; !l.lost && oldest < 0 {
				oldest = i
			}
		}
	}
	switch {
	case samePeer >= x.limits.PerPeer && oldest >= 0:
		want = communicator.PeerRenewed
	case samePeer >= x.limits.PerPeer:
		want = communicator.PeerFull
	case len(x.links) >= x.limits.Sessions:
		want = communicator.TableFull
	case sameAddress >= x.limits.Sessions-x.limits.Sessions/x.limits.Reserved:
		want = communicator.AddressFull
	}
	w.CountJudged(checkAdmission)
	switch got := x.out.Admission; {
	case got != want:
		w.FailCheck(checkAdmission, "node %d decides %d about a link, and %d is right: of %d links, %d are of its peer and %d of its address",
			n.AsSubject(), got, want, len(x.links), samePeer, sameAddress)
	case got == communicator.PeerRenewed && !slices.Contains(x.out.LostLinks, x.links[oldest].session):
		w.FailCheck(checkAdmission, "node %d makes room for a link of a peer, and does not end the oldest one", n.AsSubject())
	case got == communicator.Admitted:
		x.links = append(x.links, targetLink{session: ev.Session, peer: ev.Peer, address: ev.From})
	}
}

// stepTarget passes an event to a node's target and carries out the result.
func (x *commTarget) stepTarget(w *World, n *Node, ev communicator.TargetEvent) {
	x.out.Reset()
	x.machine.Step(&ev, &x.out)
	x.verifyLimits(w, n, &ev)
	for _, name := range x.out.SendFenced {
		w.linkOfSession(name.Session).sendToInitiator(w, communicator.MessageFenced, name.Epoch, 0, nil)
	}
	for _, name := range x.out.RemoveEnds {
		l := w.linkOfSession(name.Session)
		e := l.Comm.EpochAt(name.Epoch)
		if e.targetLeaving = true; e.targetCreated {
			l.destroyTargetEnd(w, n, e)
		}
	}
	for _, id := range x.out.LostLinks {
		l := w.linkOfSession(id)
		n.queueInOrder(w, &n.poolQueue, 0, Delivery{Kind: KindLinkLost, B: uint64(l.From), C: uint64(l.FromIncarnation)})
	}
	for _, name := range x.out.StartMargins {
		w.QueueForNode(n, commMargin, Delivery{Kind: kindCommMargin, A: w.linkOfSession(name.Session).ID, B: name.Epoch})
	}
	for _, number := range x.out.DoneRevocations {
		r := &x.revokes[number-1]
		OnEpochGrantRevoked.Report(&w.Panel, n.ID, EpochGrantRevoked{n, r})
		n.Grants[r.Grant].Revoked = true
		n.queueInOrder(w, &n.poolQueue, 0, Delivery{Kind: KindRevoked, A: uint64(r.Grant)})
	}
	for _, id := range x.out.CloseConns {
		if l := w.linkOfSession(id); !l.Comm.closed && w.IsRunning(l.From, l.FromIncarnation) {
			w.QueueForNode(w.Nodes[l.From], l.drawComm(w).HeavyTail(w.Conditions.MessageTime), Delivery{Kind: kindCommChannelLost, A: l.ID})
		}
	}
}

// linkOfSession returns the link of a session.
func (w *World) linkOfSession(id communicator.SessionID) *Link {
	return w.Links[binary.LittleEndian.Uint64(id[:])-1]
}

// sendToInitiator sends a message to the initiator, after all earlier messages.
func (l *Link) sendToInitiator(w *World, word communicator.MessageKind, epoch uint64, code effects.Code, body []byte) {
	c := l.Comm
	if c.closed || c.cut || !w.IsRunning(l.From, l.FromIncarnation) {
		return
	}
	delay := l.drawComm(w).HeavyTail(w.Conditions.MessageTime)
	if word == communicator.MessageFenced {
		delay += w.drawFenceDelay(l, epoch)
	}
	c.lastToInitiator = max(c.lastToInitiator, w.Now+int64(delay))
	w.Queue.Push(c.lastToInitiator, Delivery{Kind: KindCommToInitiator, Node: l.From, Incarnation: l.FromIncarnation, A: l.ID, B: epoch,
		C: uint64(code)<<8 | uint64(word), Body: body})
}

// drawFenceDelay draws how much longer than other messages a report that the target has fenced an epoch takes, in a third
// of the worlds. The initiator may notice by itself that the epoch is over, and offer the next one before.
func (w *World) drawFenceDelay(l *Link, epoch uint64) effects.Duration {
	if draw.IsFixed(w.Seed) || !draw.Hash(w.Seed, draw.Communicator, rulesDraw, 4).ChancePermille(333) {
		return 0
	}
	return draw.Hash(w.Seed, draw.Communicator, rulesDraw|l.ID, epoch).Duration(0, 100*effects.Millisecond)
}

// handleInitiatorMessage passes a message of an initiator to the target's machine.
func (l *Link) handleInitiatorMessage(w *World, n *Node, word communicator.MessageKind, epoch uint64) {
	ev := communicator.TargetEvent{Session: sessionID(l), Epoch: epoch}
	switch word {
	case communicator.MessageFenced:
		ev.Kind = communicator.InitiatorFenced
	case communicator.MessageGone:
		ev.Kind = communicator.InitiatorGone
	case communicator.MessageOffer:
		ev.Kind = communicator.EpochOffered
		n.target.stepTarget(w, n, ev)
		out := &n.target.out
		if out.NewerEpoch != 0 {
			w.Fail("C3", "node %d offers epoch %d of link %d after %d",
				w.Nodes[l.From].AsSubject(), epoch, oracle.Link(l.ID), out.NewerEpoch)
			return
		}
		if out.MakeEnd {
			e := l.Comm.EpochAt(epoch)
			e.TargetBegun = true
			w.QueueForNode(n, l.drawComm(w).HeavyTail(2*w.Conditions.MessageTime), Delivery{Kind: kindCommEndCreated, A: l.ID, B: epoch})
		}
		l.sendToInitiator(w, 0, epoch, out.Code, n.target.acceptBody(w, l.ImporterName))
		return
	}
	n.target.stepTarget(w, n, ev)
}

// acceptBody returns the body of an accept, which lists the revoked grants of a peer.
func (x *commTarget) acceptBody(w *World, peer effects.Incarnation) []byte {
	more := byte(0)
	if slices.Contains(x.forgottenPeers, peer) {
		more = 1
	}
	body := append(w.CopyBody(nil), more)
	for _, r := range x.newestRevokes {
		if r.peer == peer {
			body = binary.LittleEndian.AppendUint64(body, uint64(r.Grant))
		}
	}
	return body
}

// handleTargetEndCreated records that the target's end of an epoch is created, or cannot be created.
func (l *Link) handleTargetEndCreated(w *World, n *Node, e *CommEpoch) {
	switch {
	case w.IsStruck(plan.FaultImportFailed, l.subject(), 1<<32|e.Number):
		e.targetFailed, e.targetGone, e.targetDestroyEnded = true, true, true
		n.target.stepTarget(w, n, communicator.TargetEvent{
			Kind: communicator.EndFinished, Session: sessionID(l), Epoch: e.Number, Failed: true, Gone: true,
		})
	default:
		if e.targetCreated = true; e.targetLeaving {
			l.destroyTargetEnd(w, n, e)
		}
	}
	l.recheckForming(w, e)
}

// destroyTargetEnd destroys the target's end, which takes time.
func (l *Link) destroyTargetEnd(w *World, n *Node, e *CommEpoch) {
	at := l.drawComm(w).HeavyTail(2 * w.Conditions.MessageTime)
	if s, yes := w.DrawStrike(plan.FaultRevokeDelayed, l.subject(), 1<<32|e.Number); yes {
		at += s.Duration(0, 2*effects.Second)
	}
	w.QueueForNode(n, at, Delivery{Kind: kindCommEndDestroyed, A: l.ID, B: e.Number})
}

// handleTargetEndDestroyed records that the target's end is destroyed, or cannot be destroyed.
func (l *Link) handleTargetEndDestroyed(w *World, n *Node, e *CommEpoch) {
	e.targetDestroyEnded, e.targetGone = true, e.falselyGone || !w.IsStruck(plan.FaultCommStays, l.subject(), e.Number)
	if e.targetGone && !l.Comm.mapped {
		l.markOutOfReach(w, e)
	}
	n.target.stepTarget(w, n, communicator.TargetEvent{
		Kind: communicator.EndFinished, Session: sessionID(l), Epoch: e.Number, Gone: e.targetGone,
	})
	l.callOperatorIfStuck(w, n)
}

// handleChannelEnd records how the connection of a link ended.
func (l *Link) handleChannelEnd(w *World, n *Node, proves bool) {
	l.Comm.targetSawEnd = true
	l.Comm.unproven = !proves
	n.target.stepTarget(w, n, communicator.TargetEvent{Kind: communicator.LinkFailed, Session: sessionID(l)})
	n.target.stepTarget(w, n, communicator.TargetEvent{Kind: communicator.ChannelEnded, Session: sessionID(l), ProvesGone: proves})
	l.callOperatorIfStuck(w, n)
}

// callOperatorIfStuck schedules a restart of the process if nothing will ever prove that an epoch is over.
func (l *Link) callOperatorIfStuck(w *World, n *Node) {
	c := l.Comm
	if !c.targetSawEnd || !c.unproven {
		return
	}
	for _, e := range c.Epochs {
		if e.TargetBegun && e.targetDestroyEnded && !e.targetGone {
			n.callOperator(w)
			return
		}
	}
}

// expelPeer revokes a grant. The peer is expelled from its epochs, and the revocation is recorded for the peer's next
// epochs.
func (g *Grant) expelPeer(w *World, n *Node) {
	x := n.target
	r := CommRevoke{Grant: g.ID, peer: g.Peer}
	for _, l := range w.Links {
		if l.Comm == nil || l.Target != n.Pool || l.ImporterName != g.Peer {
			continue
		}
		for _, e := range l.Comm.Epochs {
			if e.TargetBegun && !e.Stopped {
				r.WaitsFor = append(r.WaitsFor, epochID{l.ID, e.Number})
			}
		}
	}
	x.revokes = append(x.revokes, r)
	if g.Peer != (effects.Incarnation{}) {
		if len(x.newestRevokes) == newestRevokesMax {
			if !slices.Contains(x.forgottenPeers, x.newestRevokes[0].peer) {
				x.forgottenPeers = append(x.forgottenPeers, x.newestRevokes[0].peer)
			}
			x.newestRevokes = append(x.newestRevokes[:0], x.newestRevokes[1:]...)
		}
		x.newestRevokes = append(x.newestRevokes, CommRevoke{Grant: g.ID, peer: g.Peer})
	}
	n.target.stepTarget(w, n, communicator.TargetEvent{
		Kind: communicator.GrantRevoked, Revocation: uint64(len(x.revokes)), Peer: g.Peer,
	})
}
