package sim

import (
	"fmt"
	"strings"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/plan"
)

// words says in a sentence what a line of the journal means, for those lines that a story is made of.
func (r *recorder) words(p *noted) string {
	who := r.who(p.node)
	if text := r.ownWords(p); text != "" {
		return text
	}
	switch p.kind {
	case kindCommand:
		return fmt.Sprintf("the engine of %s gives the command %s%s", who, plan.Want(p.b), r.about(effects.Ticket(p.a)))
	case kindDeliver:
		c := &r.w.commands[p.a-1]
		held := ""
		if c.held {
			held = ", its memory still held"
		}
		return fmt.Sprintf("%s ends the %s%s: %s%s", who, c.want, r.about(effects.Ticket(p.a)), effects.Code(p.b), held)
	case kindReturn:
		return fmt.Sprintf("%s gives the memory of ticket %d back to its engine", who, p.a)
	case kindFilled:
		return "the engine filled its pages"
	case kindLetGo:
		return fmt.Sprintf("the engine of %s has read ticket %d", who, p.a)
	case kindGrant:
		verb := "write"
		if g := r.w.nodes[p.node].grants[effects.GrantID(p.a)]; g != nil && g.read {
			verb = "read"
		}
		return fmt.Sprintf("%s lets %s %s %s", who, r.peerOf(p), verb, r.granteds(p))
	case kindRevoke:
		return fmt.Sprintf("%s asks for grant %d back", who, p.a)
	case kindRevoked:
		return fmt.Sprintf("%s is told that nothing can use grant %d any more", who, p.a)
	case kindUnmap:
		return fmt.Sprintf("the mapping behind grant %d is gone", p.a)
	case kindTransfer, kindSubmit, kindAsk, kindCopy, kindStore, kindLoad, kindLanded, kindConfirm, kindTransferDone, kindSettled, kindCancel:
		return r.moveWords(p, who)
	case kindSend, kindPost, kindReply, kindReceived, kindReplied, kindPosted:
		return r.messageWords(p, who)
	case kindObserve:
		switch effects.Fact(p.a) {
		case effects.FactReclaimed:
			return fmt.Sprintf("%s takes the pages of grant %d for free", who, p.c)
		case effects.FactFillLost:
			return fmt.Sprintf("%s gives a page up that was granted for a chunk: %s", who, effects.Code(p.b))
		case effects.FactReady:
			return who + " takes a chunk for ready"
		case effects.FactEvicted:
			return who + " gives a chunk up that nobody wants, because its page is wanted"
		case effects.FactLinkUp, effects.FactLinkDown, effects.FactGranted, effects.FactAllocRefused, effects.FactLapsed,
			effects.FactPutEnded, effects.FactProxyTold, effects.FactMalformed,
			effects.FactHelloRefused, effects.FactGivenBack: // Told by the lines around them.
		}
	case kindPhase:
		r.phases++
		return phaseWords[min(r.phases, len(phaseWords))-1]
	case kindTick:
		return who + " finds a deadline passed"
	case kindLinkLost:
		if p.a > 0 && p.a <= uint64(len(r.w.links)) {
			return fmt.Sprintf("%s hears that its data-plane link to %s is lost", who, laneName(r.w.links[p.a-1].to))
		}
		return fmt.Sprintf("%s hears that %s is gone from its data plane", who, laneName(int32(p.b)))
	case kindUnanswered:
		return fmt.Sprintf("%s gets no answer: %s", who, effects.Code(p.b))
	case kindConnLost:
		return who + " hears that a connection is lost"
	case kindCrash:
		return who + " dies, and all that it remembered"
	case kindAlone:
		return "the rank of " + who + " fails alone: it does nothing any more, and its memory stays"
	case kindShut:
		return "the planes of the rank of " + who + " that has failed are closed"
	case kindKept:
		return "nothing reaches the memory of the rank of " + who + " that has failed any more"
	case kindRestart:
		return fmt.Sprintf("%s starts again, life %d", who, p.a)
	case kindPause:
		return fmt.Sprintf("%s is frozen until %.3f s", who, float64(p.a)/1e9)
	case kindCutConn:
		return fmt.Sprintf("connection %d of %s is cut", p.a, who)
	case kindCutLink:
		return fmt.Sprintf("data-plane link %d of %s is cut", p.a, who)
	case kindNoise:
		return who + " receives bytes that are no message"
	}
	return ""
}

// phaseWords are the phases of [world.live], in order.
var phaseWords = [...]string{"faults may happen", "faults end, all heals", "commands must end", "probes", "what nobody wants expires", "all drain"}

// about names the request, or the ticket that a command is about.
func (r *recorder) about(t effects.Ticket) string {
	c := &r.w.commands[t-1]
	name := ""
	if n := r.w.requestOf(t); n != nil {
		name = fmt.Sprintf(" for request %s", n)
	}
	if c.target != 0 && c.target != t {
		return fmt.Sprintf(" ticket %d%s (ticket %d)", c.target, name, t)
	}
	return fmt.Sprintf("%s (ticket %d)", name, t)
}

func (r *recorder) peerOf(p *noted) string {
	if g := r.w.nodes[p.node].grants[effects.GrantID(p.a)]; g != nil {
		if peer := r.nodeOf(g.peer); peer != nil {
			return laneName(peer.id)
		}
	}
	return "a peer"
}

func (r *recorder) granteds(p *noted) string {
	n := r.w.nodes[p.node]
	g := n.grants[effects.GrantID(p.a)]
	if g == nil {
		return fmt.Sprintf("page %d under grant %d", p.c, p.a)
	}
	var pages []uint32
	for _, page := range g.pages {
		pages = append(pages, page.Index)
	}
	return fmt.Sprintf("%s under grant %d, leased for %.3f s", counted("page", pages), p.a, float64(n.cfg.Lease)/1e9)
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

func (r *recorder) moveWords(p *noted, who string) string {
	id := p.a
	switch p.kind {
	case kindTransfer, kindTransferDone, kindSettled, kindCancel:
		i, ok := r.transfers[r.corrOf(p.node, p.a)]
		if !ok {
			return ""
		}
		id = r.t.Transfers[i].ID
	}
	if id == 0 || id > uint64(len(r.w.transfers)) {
		return ""
	}
	t := r.w.transfers[id-1]
	to := laneName(t.remote.node.id)
	var local, remote []uint32
	for _, pair := range t.pairs {
		local, remote = append(local, pair.Local.Index), append(remote, pair.Remote.Index)
	}
	one := func() (uint32, uint32) {
		if p.b < uint64(len(t.pairs)) {
			return local[p.b], remote[p.b]
		}
		return 0, 0
	}
	switch p.kind {
	case kindTransfer:
		if t.read {
			return fmt.Sprintf("%s starts transfer %d: %s of %s into its %s, under grant %d, not after %.6f s", who, id,
				counted("page", remote), to, counted("page", local), t.grant, float64(t.local.node.when(t.notAfter))/1e9)
		}
		return fmt.Sprintf("%s starts transfer %d: its %s into %s of %s, under grant %d, not after %.6f s", who, id,
			counted("page", local), counted("page", remote), to, t.grant, float64(t.local.node.when(t.notAfter))/1e9)
	case kindSubmit:
		return fmt.Sprintf("transfer %d leaves %s for the device", id, who)
	case kindAsk:
		return fmt.Sprintf("%s is asked to carry out transfer %d: %s", who, id, effects.Code(p.b))
	case kindCopy, kindStore, kindLoad:
		from, into := one()
		owner, taker := laneName(t.local.node.id), to
		if t.read {
			from, into, owner, taker = into, from, taker, owner
		}
		half := "first"
		if p.c == 1 {
			half = "second"
		}
		return fmt.Sprintf("the %s half of page %d of %s is stored into page %d of %s (transfer %d)", half, from, owner, into, taker, id)
	case kindLanded:
		return fmt.Sprintf("%s is told that %d of %d pages of transfer %d landed", who, p.c, len(t.pairs), id)
	case kindConfirm:
		return fmt.Sprintf("%s confirms transfer %d: %s", who, id, effects.Code(p.b))
	case kindTransferDone:
		settled := "settled"
		if p.c == 0 {
			settled = "not settled: it may still touch its pages"
		}
		return fmt.Sprintf("%s hears that transfer %d ended: %s, %s", who, id, effects.Code(p.b), settled)
	case kindSettled:
		return fmt.Sprintf("%s hears that nothing touches the pages of transfer %d any more", who, id)
	case kindCancel:
		return fmt.Sprintf("%s wants transfer %d stopped", who, id)
	}
	return ""
}

func (r *recorder) messageWords(p *noted, who string) string {
	i := r.messageOf(p)
	if p.kind == kindPost || p.kind == kindReply {
		i = len(r.t.Messages) - 1
	}
	if i < 0 {
		return ""
	}
	m := &r.t.Messages[i]
	from, to := r.who(int32(m.From)), r.who(int32(m.To))
	if m.Channel == effects.ChannelProxy.String() && m.To < 0 {
		to = "the proxy"
	}
	switch p.kind {
	case kindSend, kindPost, kindReply:
		lost := ""
		if m.Lost {
			lost = ", and it is lost"
		}
		return fmt.Sprintf("%s sends %s to %s%s", who, m.Kind, to, lost)
	case kindPosted:
		return fmt.Sprintf("the proxy receives %s from %s", m.Kind, from)
	}
	return fmt.Sprintf("%s receives %s from %s", who, m.Kind, from)
}
