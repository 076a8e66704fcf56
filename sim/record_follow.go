package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/trace"
)

// follow keeps the stories that take more than one line: a message from its sender to its receiver, a
// transfer, a grant, a command, the lives of a node.
func (r *recorder) follow(p *noted) {
	w, t := r.w, r.t
	switch p.kind {
	case kindCommand:
		ticket := effects.Ticket(p.a)
		r.commands[ticket] = len(t.Commands)
		t.Commands = append(t.Commands, trace.Command{Ticket: p.a, Node: int(p.node), Want: r.wantName(&w.commands[ticket-1]),
			Given:     p.at,
			Delivered: trace.Never, Returned: trace.Never, Refs: r.commandRefs(ticket)})
	case kindDeliver:
		if i, ok := r.commands[effects.Ticket(p.a)]; ok {
			c := &t.Commands[i]
			c.Delivered, c.Code, c.Refs = p.at, effects.Code(p.b).String(), r.commandRefs(effects.Ticket(p.a))
		}
	case kindReturn:
		if i, ok := r.commands[effects.Ticket(p.a)]; ok {
			t.Commands[i].Returned = p.at
		}
	case kindSend, kindPost, kindReply, kindNoise:
		r.sent(p)
	case kindReceived, kindReplied, kindPosted:
		if i := r.messageOf(p); i >= 0 {
			t.Messages[i].Arrived = p.at
		}
		if p.kind == kindPosted && len(r.posts) > 0 {
			r.posts = slices.DeleteFunc(r.posts, func(i int) bool { return t.Messages[i].Arrived == p.at })
		}
		p.message = nil // It is what was sent; the trace has it there.
	case kindGrant:
		r.granted(p)
	case kindRevoke:
		if i, ok := r.grants[grantOf{p.node, w.nodes[p.node].life, effects.GrantID(p.a)}]; ok {
			t.Grants[i].Revoked = p.at
		}
	case kindSubmit, kindAsk, kindCopy, kindStore, kindLoad, kindLanded, kindTransferDone, kindSettled:
		r.moved(p)
	case kindCrash, kindAlone:
		r.life(p.node, p.at, "down")
		for i := range t.Grants {
			if g := &t.Grants[i]; g.Node == int(p.node) && g.Gone == trace.Never {
				g.Gone = p.at
			}
		}
	case kindRestart:
		r.life(p.node, p.at, "up")
	case kindPhase: // Healing thaws whoever is frozen.
		for i := range t.Nodes {
			if l := t.Nodes[i].Lives; l[len(l)-1].State == "up" && l[len(l)-1].From > p.at {
				r.life(int32(i), p.at, "up")
			}
		}
	case kindPause:
		r.life(p.node, p.at, "frozen")
		r.life(p.node, int64(p.a), "up")
	}
}

// sent starts a message.
func (r *recorder) sent(p *noted) {
	w := r.w
	m := trace.Message{From: int(p.node), To: trace.World, Sent: p.at, Arrived: trace.Never, Kind: "message"}
	var over *conn
	n := len(r.t.Messages)
	switch p.kind {
	case kindNoise:
		m.From, m.To, m.Kind, m.Channel, m.Arrived = trace.World, int(p.node), "noise", effects.Channel(p.a).String(), p.at
	case kindReply:
		if p.a == 0 || p.a > uint64(len(w.requests)) {
			return
		}
		q := &w.requests[p.a-1]
		if q.conn == nil {
			m.Arrived = p.at // To whoever made the noise; nobody waits for it.
			break
		}
		over = q.conn
		m.To, m.Channel = int(over.client), over.channel.String()
		r.replies[askOf{over.id, uint64(q.corr)}] = n
	default:
		over = w.connOf(p.b)
		if over == nil {
			return
		}
		m.To, m.Channel = max(int(over.server), trace.World), over.channel.String()
		if p.kind == kindPost {
			r.posts = append(r.posts, n)
		} else {
			r.sends[r.corrOf(p.node, p.a)] = n
		}
	}
	if d := p.message; d != nil {
		m.Kind, m.Text, m.Refs = d.kind, d.text, d.refs
	}
	m.Lost = over != nil && (over.dead || over.closed)
	r.t.Messages = append(r.t.Messages, m)
	r.over = append(r.over, over)
}

// messageOf finds the message that a line is about; -1 if it is about none.
func (r *recorder) messageOf(p *noted) int {
	w := r.w
	find := func(i int, ok bool) int {
		if !ok {
			return -1
		}
		return i
	}
	switch p.kind {
	case kindSend:
		i, ok := r.sends[r.corrOf(p.node, p.a)]
		return find(i, ok)
	case kindReceived:
		if p.c == 0 || p.c > uint64(len(w.requests)) {
			return -1
		}
		if q := &w.requests[p.c-1]; q.conn != nil {
			i, ok := r.sends[corrOf{q.conn.client, q.conn.life, uint64(q.corr)}]
			return find(i, ok)
		}
	case kindReplied:
		i, ok := r.replies[askOf{p.b, p.a}]
		return find(i, ok)
	case kindPosted:
		for _, i := range r.posts {
			if m := &r.t.Messages[i]; m.From == int(p.a) && slices.Contains(m.Refs, r.requestOfNumber(p.b)) {
				return i
			}
		}
	}
	return -1
}

func (r *recorder) requestOfNumber(n uint64) int {
	if n >= uint64(len(r.w.jobs)) {
		return -1
	}
	return r.requestRef(r.w.jobs[n].name)
}

// lostMessages finds which of the messages that never arrived can do so no more.
func (r *recorder) lostMessages() {
	for i := range r.t.Messages {
		if m, c := &r.t.Messages[i], r.over[i]; m.Arrived == trace.Never && c != nil && (c.dead || c.closed) {
			m.Lost = true
		}
	}
}

// granted starts a grant.
func (r *recorder) granted(p *noted) {
	n := r.w.nodes[p.node]
	id := effects.GrantID(p.a)
	g := n.grants[id]
	if g == nil {
		return // An oracle refused it.
	}
	t := trace.Grant{Ref: r.grantRef(n.id, n.life, id), Node: int(n.id), Life: int(n.life), Peer: trace.World, From: p.at,
		Lease: n.when(g.ends), Revoked: trace.Never, Gone: trace.Never, Refs: r.grantRefs(n.id, id)}
	if peer := r.nodeOf(g.peer); peer != nil {
		t.Peer = int(peer.id)
	}
	for _, page := range g.pages {
		t.Pages = append(t.Pages, int(page.Index))
	}
	r.grants[grantOf{n.id, n.life, id}] = len(r.t.Grants)
	r.open = append(r.open, len(r.t.Grants))
	r.t.Grants = append(r.t.Grants, t)
}

// newTransfers starts those that were submitted since the last line.
func (r *recorder) newTransfers() {
	for i := len(r.t.Transfers); i < len(r.w.transfers); i++ {
		t := r.w.transfers[i]
		to := trace.World
		at := trace.Transfer{ID: t.id, From: int(t.local.node.id), To: to, Started: r.w.now, Asked: trace.Never, Ended: trace.Never,
			Settled: trace.Never, NotAfter: t.local.node.when(t.notAfter)}
		r.transfers[corrOf{t.local.node.id, t.local.life, uint64(t.corr)}] = i
		if t.remote != nil {
			at.To = int(t.remote.node.id)
			at.Grant = r.grantRef(t.remote.node.id, t.remote.life, t.grant)
			at.Refs = r.transferRefs(t.id, -1)
		}
		r.t.Transfers = append(r.t.Transfers, at)
	}
}

// moved follows a transfer.
func (r *recorder) moved(p *noted) {
	id := p.a
	if p.kind == kindTransferDone || p.kind == kindSettled {
		i, ok := r.transfers[r.corrOf(p.node, p.a)]
		if !ok {
			return
		}
		id = uint64(i) + 1
	}
	if id == 0 || id > uint64(len(r.t.Transfers)) {
		return
	}
	t, live := &r.t.Transfers[id-1], r.w.transfers[id-1]
	target := func() (pageOf, bool) {
		if p.b >= uint64(len(live.pairs)) {
			return pageOf{}, false
		}
		if live.read {
			return pageOf{int32(t.From), live.pairs[p.b].Local.Index}, true
		}
		return pageOf{int32(t.To), live.pairs[p.b].Remote.Index}, true
	}
	switch p.kind {
	case kindAsk:
		t.Asked = p.at
	case kindCopy, kindStore, kindLoad:
		if page, ok := target(); ok {
			t.Stores = append(t.Stores, trace.Store{At: p.at, Page: int(page.index), Half: int(p.c)})
			r.storing[page] = p.kind == kindCopy && p.c == 0 && !live.read
		}
	case kindTransferDone:
		t.Ended, t.Code = p.at, effects.Code(p.b).String()
		if p.c == 1 {
			t.Settled = p.at
		}
	case kindSettled:
		t.Settled = p.at
	case kindLanded:
		for _, pair := range live.pairs {
			delete(r.storing, pageOf{int32(t.To), pair.Remote.Index})
		}
	}
}

// endGrants ends the grants under which no page of the node is left. What a driver still honours
// counts, whatever the machine believes; on leased planes only the machine knows.
func (r *recorder) endGrants(n *node) {
	r.open = slices.DeleteFunc(r.open, func(i int) bool {
		g := &r.t.Grants[i]
		if g.Node != int(n.id) || g.Gone != trace.Never {
			return g.Gone != trace.Never
		}
		for _, lent := range n.pool.lent {
			if r.grants[grantOf{n.id, n.life, lent.id}] == i && r.w.standing(n, lent) {
				return false
			}
		}
		for _, p := range g.Pages {
			pg, m := n.page(p)
			id := m.Grant
			if !r.w.plan.Leased {
				id = pg.granted
			}
			if r.grants[grantOf{n.id, n.life, id}] == i && id != 0 {
				return false
			}
		}
		g.Gone = r.w.now
		return true
	})
}
