package story

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// words returns a sentence that explains a line of the journal, or "" for lines that a story does not use.
func (r *Recorder) words(p *noted) string {
	who := r.of.Who(p.Node)
	if text := r.of.Words(p.Entry); text != "" {
		return text
	}
	switch p.Kind {
	case world.KindCommand:
		return fmt.Sprintf("the engine of %s issues the command %s%s", who, plan.Want(p.B), r.about(effects.Ticket(p.A)))
	case world.KindDeliver:
		c := r.of.Command(effects.Ticket(p.A))
		held := ""
		if c.Held {
			held = ", but its memory stays held"
		}
		return fmt.Sprintf("%s completes the %s%s: %s%s", who, c.Want, r.about(effects.Ticket(p.A)), effects.Code(p.B), held)
	case world.KindReturn:
		return fmt.Sprintf("%s returns the memory of ticket %d to its engine", who, p.A)
	case world.KindFilled:
		return "the engine has filled its pages"
	case world.KindLetGo:
		return fmt.Sprintf("the engine of %s has finished reading ticket %d", who, p.A)
	case world.KindGrant:
		verb := "write"
		if g := r.w.Nodes[p.Node].Grants[effects.GrantID(p.A)]; g != nil && g.Read {
			verb = "read"
		}
		return fmt.Sprintf("%s allows %s to %s %s", who, r.peerOf(p), verb, r.granteds(p))
	case world.KindStoreIn:
		return fmt.Sprintf("%s stores %d bytes that the message carried into its page %d", who, p.C, p.A)
	case world.KindRevoke:
		return fmt.Sprintf("%s revokes grant %d", who, p.A)
	case world.KindRevoked:
		return fmt.Sprintf("%s is notified that no transfer can use grant %d any more", who, p.A)
	case world.KindUnmap:
		return fmt.Sprintf("the mapping for grant %d is unmapped", p.A)
	case world.KindTransfer, world.KindSubmit, world.KindAsk, world.KindCopy, world.KindStore, world.KindLoad,
		world.KindLanded, world.KindConfirm, world.KindTransferDone, world.KindSettled, world.KindCancel:
		return r.moveWords(p, who)
	case world.KindSend, world.KindPost, world.KindReply, world.KindReceived, world.KindReplied, world.KindPosted:
		return r.messageWords(p, who)
	case world.KindObserve:
		//exhaustive:ignore
		switch effects.Fact(p.A) { // Other facts are clear from the surrounding lines.
		case effects.FactReclaimed:
			return fmt.Sprintf("%s considers the pages of grant %d free", who, p.C)
		case effects.FactFillLost:
			return fmt.Sprintf("%s discards a page that was granted for a chunk: %s", who, effects.Code(p.B))
		case effects.FactReady:
			return who + " considers a chunk ready"
		case effects.FactEvicted:
			return who + " evicts a chunk that no request expects, because its page is needed"
		}
	case world.KindPhase:
		if r.phases++; r.phases == probing {
			r.probes = r.t.Dropped + p.event
		}
		return phaseWords[min(r.phases, len(phaseWords))-1]
	case world.KindTick:
		return who + " handles a deadline that has passed"
	case world.KindLinkLost:
		if p.A > 0 && p.A <= uint64(len(r.w.Links)) {
			return fmt.Sprintf("%s is notified that its data-plane link to %s is lost", who, world.LaneName(r.w.Links[p.A-1].To))
		}
		return fmt.Sprintf("%s is notified that %s has left its data plane", who, world.LaneName(int32(p.B)))
	case world.KindUnanswered:
		return fmt.Sprintf("a request of %s fails without a reply: %s", who, effects.Code(p.B))
	case world.KindConnLost:
		return who + " is notified that a connection is lost"
	case world.KindCrash:
		return who + " crashes and loses all its state"
	case world.KindAlone:
		return "the rank of " + who + " fails and does nothing more, but its process and its memory stay"
	case world.KindShut:
		return "the data planes of the failed rank of " + who + " are closed"
	case world.KindKept:
		return "no transfer can reach the memory of the failed rank of " + who + " any more"
	case world.KindRestart:
		return fmt.Sprintf("%s starts again, incarnation %d", who, p.A)
	case world.KindPause:
		return fmt.Sprintf("%s is frozen until %.3f s", who, float64(p.A)/1e9)
	case world.KindCutConn:
		return fmt.Sprintf("connection %d of %s is cut", p.A, who)
	case world.KindCutLink:
		return fmt.Sprintf("data-plane link %d of %s is cut", p.A, who)
	case world.KindNoise:
		return who + " receives bytes that are not a message"
	}
	return ""
}

// phaseWords describes the phases of [world.live], in order.
var phaseWords = [...]string{
	"faults may occur", "faults end and connections recover", "commands must end", "probes", "unused data expires", "all nodes drain",
}

// about returns a phrase that names the request or the ticket of a command.
func (r *names) about(t effects.Ticket) string {
	c := r.of.Command(t)
	name := ""
	if n := r.of.RequestOf(t); n != nil {
		name = fmt.Sprintf(" for request %s", n)
	}
	if c.Target != 0 && c.Target != t {
		return fmt.Sprintf(" ticket %d%s (ticket %d)", c.Target, name, t)
	}
	return fmt.Sprintf("%s (ticket %d)", name, t)
}

func (r *names) peerOf(p *noted) string {
	if g := r.w.Nodes[p.Node].Grants[effects.GrantID(p.A)]; g != nil {
		if peer := r.of.LifeOf(g.Peer); peer != nil {
			return world.LaneName(peer.ID)
		}
	}
	return "a peer"
}

func (r *names) granteds(p *noted) string {
	n := r.w.Nodes[p.Node]
	g := n.Grants[effects.GrantID(p.A)]
	if g == nil {
		return fmt.Sprintf("page %d under grant %d", p.C, p.A)
	}
	var pages []uint32
	for _, page := range g.Pages {
		pages = append(pages, page.Index)
	}
	return fmt.Sprintf("%s under grant %d, leased for %.3f s", counted("page", pages), p.A,
		float64(r.of.Lease(n))/1e9)
}

// counted lists numbers: "page 3", "pages 3, 4".
func counted(noun string, numbers []uint32) string {
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

func (r *Recorder) moveWords(p *noted, who string) string {
	id := p.A
	switch p.Kind {
	case world.KindTransfer, world.KindTransferDone, world.KindSettled, world.KindCancel:
		i, ok := r.transfers[r.corrOf(p.Node, p.A)]
		if !ok {
			return ""
		}
		id = r.t.Transfers[i].ID
	}
	if id == 0 || id > uint64(len(r.w.Transfers)) {
		return ""
	}
	t := r.w.Transfers[id-1]
	to := world.LaneName(t.Remote.Node.ID)
	var local, remote []uint32
	for _, pair := range t.Pairs {
		local, remote = append(local, pair.Local.Index), append(remote, pair.Remote.Index)
	}
	one := func() (uint32, uint32) {
		if p.B < uint64(len(t.Pairs)) {
			return local[p.B], remote[p.B]
		}
		return 0, 0
	}
	switch p.Kind {
	case world.KindTransfer:
		if t.Read {
			return fmt.Sprintf("%s starts transfer %d: %s of %s into its %s, under grant %d, not after %.6f s", who, id,
				counted("page", remote), to, counted("page", local), t.Grant, float64(t.Local.Node.When(t.NotAfter))/1e9)
		}
		return fmt.Sprintf("%s starts transfer %d: its %s into %s of %s, under grant %d, not after %.6f s", who, id,
			counted("page", local), counted("page", remote), to, t.Grant, float64(t.Local.Node.When(t.NotAfter))/1e9)
	case world.KindSubmit:
		return fmt.Sprintf("%[2]s submits transfer %[1]d to the device", id, who)
	case world.KindAsk:
		return fmt.Sprintf("%s receives the request to carry out transfer %d: %s", who, id, effects.Code(p.B))
	case world.KindCopy, world.KindStore, world.KindLoad:
		from, into := one()
		owner, taker := world.LaneName(t.Local.Node.ID), to
		if t.Read {
			from, into, owner, taker = into, from, taker, owner
		}
		half := "first"
		if p.C == 1 {
			half = "second"
		}
		return fmt.Sprintf("the %s half of page %d of %s is stored into page %d of %s (transfer %d)", half, from, owner, into,
			taker, id)
	case world.KindLanded:
		return fmt.Sprintf("%s is notified that %d of %d pages of transfer %d have landed", who, p.C, len(t.Pairs), id)
	case world.KindConfirm:
		return fmt.Sprintf("%s confirms transfer %d: %s", who, id, effects.Code(p.B))
	case world.KindTransferDone:
		settled := "settled"
		if p.C == 0 {
			settled = "not settled: the transfer may still access its pages"
		}
		return fmt.Sprintf("%s is notified that transfer %d has ended: %s, %s", who, id, effects.Code(p.B), settled)
	case world.KindSettled:
		return fmt.Sprintf("%s is notified that transfer %d cannot access its pages any more", who, id)
	case world.KindCancel:
		return fmt.Sprintf("%s cancels transfer %d", who, id)
	}
	return ""
}

func (r *Recorder) messageWords(p *noted, who string) string {
	i := r.messageOf(p)
	if p.Kind == world.KindPost || p.Kind == world.KindReply {
		i = len(r.t.Messages) - 1
	}
	if i < 0 {
		return ""
	}
	m := &r.t.Messages[i]
	from, to := r.of.Who(int32(m.From)), r.of.Who(int32(m.To))
	if m.Channel == effects.ChannelProxy.String() && m.To < 0 {
		to = "the proxy"
	}
	switch p.Kind {
	case world.KindSend, world.KindPost, world.KindReply:
		lost := ""
		if m.Lost {
			lost = ", and the message is lost"
		}
		return fmt.Sprintf("%s sends %s to %s%s", who, m.Kind, to, lost)
	case world.KindPosted:
		return fmt.Sprintf("the proxy receives %s from %s", m.Kind, from)
	}
	return fmt.Sprintf("%s receives %s from %s", who, m.Kind, from)
}
