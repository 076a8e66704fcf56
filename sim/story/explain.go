package story

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// explainLine returns a sentence that explains a line of the journal, or "" for lines that a story does not use.
func (r *Recorder) explainLine(p *pendingLine) string {
	label := r.describer.NodeLabel(p.Node)
	if text := r.describer.ExplainLine(p.Entry); text != "" {
		return text
	}
	switch p.Kind {
	case world.KindCommand:
		return fmt.Sprintf("the engine of %s issues the command %s%s", label, plan.CommandKind(p.B), r.commandPhrase(effects.Ticket(p.A)))
	case world.KindDeliver:
		c := r.describer.DescribeCommand(effects.Ticket(p.A))
		held := ""
		if c.Held {
			held = ", but its memory stays held"
		}
		return fmt.Sprintf("%s completes the %s%s: %s%s", label, c.Kind, r.commandPhrase(effects.Ticket(p.A)), effects.Code(p.B), held)
	case world.KindReturn:
		return fmt.Sprintf("%s returns the memory of ticket %d to its engine", label, p.A)
	case world.KindPagesFilled:
		return "the engine has filled its pages"
	case world.KindReleasePages:
		return fmt.Sprintf("the engine of %s has finished reading ticket %d", label, p.A)
	case world.KindGrant:
		verb := "write"
		if g := r.w.Nodes[p.Node].Grants[effects.GrantID(p.A)]; g != nil && g.Read {
			verb = "read"
		}
		return fmt.Sprintf("%s allows %s to %s %s", label, r.peerName(p), verb, r.grantPhrase(p))
	case world.KindStoreCarried:
		return fmt.Sprintf("%s stores %d bytes that the message carried into its page %d", label, p.C, p.A)
	case world.KindRevoke:
		return fmt.Sprintf("%s revokes grant %d", label, p.A)
	case world.KindRevoked:
		return fmt.Sprintf("%s is notified that no transfer can use grant %d any more", label, p.A)
	case world.KindUnmap:
		return fmt.Sprintf("the mapping for grant %d is unmapped", p.A)
	case world.KindTransfer, world.KindSubmit, world.KindTransferRequest, world.KindCopy, world.KindStore, world.KindLoad,
		world.KindLanded, world.KindConfirm, world.KindTransferDone, world.KindSettled, world.KindCancel:
		return r.explainTransfer(p, label)
	case world.KindSend, world.KindPost, world.KindReply, world.KindReceived, world.KindReplied, world.KindProxyPost:
		return r.explainMessage(p, label)
	case world.KindObserve:
		//exhaustive:ignore
		switch effects.Fact(p.A) { // Other facts are clear from the surrounding lines.
		case effects.FactReclaimed:
			return fmt.Sprintf("%s considers the pages of grant %d free", label, p.C)
		case effects.FactFillLost:
			return fmt.Sprintf("%s discards a page that was granted for a chunk: %s", label, effects.Code(p.B))
		case effects.FactReady:
			return label + " considers a chunk ready"
		case effects.FactEvicted:
			return label + " evicts a chunk that no request expects, because its page is needed"
		}
	case world.KindPhase:
		if r.phases++; r.phases == probePhase {
			r.probesStart = r.t.Dropped + p.event
		}
		return phaseTexts[min(r.phases, len(phaseTexts))-1]
	case world.KindOpened:
		if effects.Code(p.C) == effects.OK {
			return ""
		}
		to := "a peer"
		if c := r.w.ConnOf(p.B); c != nil && c.Server >= 0 {
			to = r.describer.NodeLabel(c.Server)
		}
		return fmt.Sprintf("%s cannot connect to %s: %s", label, to, effects.Code(p.C))
	case world.KindTick:
		return label + " handles a deadline that has passed"
	case world.KindLinkLost:
		if p.A > 0 && p.A <= uint64(len(r.w.Links)) {
			return fmt.Sprintf("%s is notified that its data-plane link to %s is lost", label, world.NodeName(r.w.Links[p.A-1].To))
		}
		return fmt.Sprintf("%s is notified that %s has left its data plane", label, world.NodeName(int32(p.B)))
	case world.KindUnanswered:
		return fmt.Sprintf("a request of %s fails without a reply: %s", label, effects.Code(p.B))
	case world.KindConnLost:
		return label + " is notified that a connection is lost"
	case world.KindCrash:
		return label + " crashes and loses all its state"
	case world.KindRankFailed:
		return "the rank of " + label + " fails and does nothing more, but its process and its memory stay"
	case world.KindPlanesClosed:
		return "the data planes of the failed rank of " + label + " are closed"
	case world.KindPoolUnreachable:
		return "no transfer can reach the memory of the failed rank of " + label + " any more"
	case world.KindRestart:
		return fmt.Sprintf("%s starts again, incarnation %d", label, p.A)
	case world.KindPause:
		return fmt.Sprintf("%s is frozen until %.3f s", label, float64(p.A)/1e9)
	case world.KindCutConn:
		return fmt.Sprintf("connection %d of %s is cut", p.A, label)
	case world.KindCutLink:
		return fmt.Sprintf("data-plane link %d of %s is cut", p.A, label)
	case world.KindNoise:
		return label + " receives bytes that are not a message"
	}
	return ""
}

// phaseTexts describes the phases of [world.World.RunPhases], in order.
var phaseTexts = [...]string{
	"faults may occur", "faults end and connections recover", "commands must end", "probes", "unused data expires", "all nodes drain",
}

// commandPhrase returns a phrase that names the request or the ticket of a command.
func (r *refTable) commandPhrase(t effects.Ticket) string {
	c := r.describer.DescribeCommand(t)
	name := ""
	if n := r.describer.RequestOfCommand(t); n != nil {
		name = fmt.Sprintf(" for request %s", n)
	}
	if c.Target != 0 && c.Target != t {
		return fmt.Sprintf(" ticket %d%s (ticket %d)", c.Target, name, t)
	}
	return fmt.Sprintf("%s (ticket %d)", name, t)
}

func (r *refTable) peerName(p *pendingLine) string {
	if g := r.w.Nodes[p.Node].Grants[effects.GrantID(p.A)]; g != nil {
		if peer := r.describer.NodeOfIncarnation(g.Peer); peer != nil {
			return world.NodeName(peer.ID)
		}
	}
	return "a peer"
}

func (r *refTable) grantPhrase(p *pendingLine) string {
	n := r.w.Nodes[p.Node]
	g := n.Grants[effects.GrantID(p.A)]
	if g == nil {
		return fmt.Sprintf("page %d under grant %d", p.C, p.A)
	}
	var pages []uint32
	for _, page := range g.Pages {
		pages = append(pages, page.Index)
	}
	lease := r.describer.LeaseTime(n)
	return fmt.Sprintf("%s under grant %d, leased for %.3f s until %.6f s", listNumbers("page", pages), p.A, float64(lease)/1e9,
		float64(p.At+int64(lease))/1e9)
}

// listNumbers lists numbers: "page 3", "pages 3, 4".
func listNumbers(noun string, numbers []uint32) string {
	var b strings.Builder
	b.WriteString(noun)
	if len(numbers) != 1 {
		b.WriteByte('s')
	}
	for i, n := range numbers {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %d", n)
	}
	return b.String()
}

func (r *Recorder) explainTransfer(p *pendingLine, label string) string {
	id := p.A
	switch p.Kind {
	case world.KindTransfer, world.KindTransferDone, world.KindSettled, world.KindCancel:
		i, ok := r.transfers[r.corrKeyOf(p.Node, p.A)]
		if !ok {
			return ""
		}
		id = r.t.Transfers[i].ID
	}
	if id == 0 || id > uint64(len(r.w.Transfers)) {
		return ""
	}
	t := r.w.Transfers[id-1]
	to := world.NodeName(t.Remote.Node.ID)
	var local, remote []uint32
	for _, pair := range t.Pairs {
		local, remote = append(local, pair.Local.Index), append(remote, pair.Remote.Index)
	}
	pairPages := func() (uint32, uint32) {
		if p.B < uint64(len(t.Pairs)) {
			return local[p.B], remote[p.B]
		}
		return 0, 0
	}
	switch p.Kind {
	case world.KindTransfer:
		if t.Read {
			return fmt.Sprintf("%s starts transfer %d: %s of %s into its %s, under grant %d, not after %.6f s", label, id,
				listNumbers("page", remote), to, listNumbers("page", local), t.Grant, float64(t.Local.Node.InstantOf(t.NotAfter))/1e9)
		}
		return fmt.Sprintf("%s starts transfer %d: its %s into %s of %s, under grant %d, not after %.6f s", label, id,
			listNumbers("page", local), listNumbers("page", remote), to, t.Grant, float64(t.Local.Node.InstantOf(t.NotAfter))/1e9)
	case world.KindSubmit:
		return fmt.Sprintf("%[2]s submits transfer %[1]d to the device", id, label)
	case world.KindTransferRequest:
		return fmt.Sprintf("%s receives the request to carry out transfer %d: %s", label, id, effects.Code(p.B))
	case world.KindCopy, world.KindStore, world.KindLoad:
		from, into := pairPages()
		owner, receiver := world.NodeName(t.Local.Node.ID), to
		if t.Read {
			from, into, owner, receiver = into, from, receiver, owner
		}
		half := "first"
		if p.C == 1 {
			half = "second"
		}
		return fmt.Sprintf("the %s half of page %d of %s is stored into page %d of %s (transfer %d)", half, from, owner, into,
			receiver, id)
	case world.KindLanded:
		return fmt.Sprintf("%s is notified that %d of %d pages of transfer %d have landed", label, p.C, len(t.Pairs), id)
	case world.KindConfirm:
		return fmt.Sprintf("%s confirms transfer %d: %s", label, id, effects.Code(p.B))
	case world.KindTransferDone:
		settled := "settled"
		if p.C == 0 {
			settled = "not settled: the transfer may still access its pages"
		}
		return fmt.Sprintf("%s is notified that transfer %d has ended: %s, %s", label, id, effects.Code(p.B), settled)
	case world.KindSettled:
		return fmt.Sprintf("%s is notified that transfer %d cannot access its pages any more", label, id)
	case world.KindCancel:
		return fmt.Sprintf("%s cancels transfer %d", label, id)
	}
	return ""
}

func (r *Recorder) explainMessage(p *pendingLine, label string) string {
	i := r.messageIndex(p)
	if p.Kind == world.KindPost || p.Kind == world.KindReply {
		i = len(r.t.Messages) - 1
	}
	if i < 0 {
		return ""
	}
	m := &r.t.Messages[i]
	from, to := r.describer.NodeLabel(int32(m.From)), r.describer.NodeLabel(int32(m.To))
	if m.Channel == effects.ChannelProxy.String() && m.To < 0 {
		to = "the proxy"
	}
	switch p.Kind {
	case world.KindSend, world.KindPost, world.KindReply:
		lost := ""
		if m.Lost {
			lost = ", and the message is lost"
		}
		return fmt.Sprintf("%s sends %s to %s%s", label, m.Kind, to, lost)
	case world.KindProxyPost:
		return fmt.Sprintf("the proxy receives %s from %s", m.Kind, from)
	}
	return fmt.Sprintf("%s receives %s from %s", label, m.Kind, from)
}
