package story

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// follow updates the records that span several journal lines: messages, transfers, grants, commands and the
// incarnations of a node.
func (r *Recorder) follow(p *noted) {
	w, t := r.w, r.t
	switch p.Kind {
	case world.KindCommand:
		ticket := effects.Ticket(p.A)
		r.commands[ticket] = len(t.Commands)
		t.Commands = append(t.Commands, trace.Command{Ticket: p.A, Node: int(p.Node), Want: r.of.Command(ticket).Want,
			Given:     p.At,
			Delivered: trace.Never, Returned: trace.Never, Refs: r.commandRefs(ticket)})
	case world.KindDeliver:
		if i, ok := r.commands[effects.Ticket(p.A)]; ok {
			c := &t.Commands[i]
			c.Delivered, c.Code, c.Refs = p.At, effects.Code(p.B).String(), r.commandRefs(effects.Ticket(p.A))
		}
	case world.KindReturn:
		if i, ok := r.commands[effects.Ticket(p.A)]; ok {
			t.Commands[i].Returned = p.At
		}
	case world.KindSend, world.KindPost, world.KindReply, world.KindNoise:
		r.sent(p)
	case world.KindReceived, world.KindReplied, world.KindPosted:
		if i := r.messageOf(p); i >= 0 {
			t.Messages[i].Arrived = p.At
		}
		if p.Kind == world.KindPosted && len(r.posts) > 0 {
			r.posts = slices.DeleteFunc(r.posts, func(i int) bool { return t.Messages[i].Arrived == p.At })
		}
		p.message = nil // The trace has the content with the sent message.
	case world.KindGrant:
		r.granted(p)
	case world.KindRevoke:
		if i, ok := r.grants[grantOf{p.Node, w.Nodes[p.Node].Life, effects.GrantID(p.A)}]; ok {
			t.Grants[i].Revoked = p.At
		}
	case world.KindSubmit, world.KindAsk, world.KindCopy, world.KindStore, world.KindLoad, world.KindLanded,
		world.KindTransferDone, world.KindSettled:
		r.moved(p)
	case world.KindCrash, world.KindAlone:
		r.life(p.Node, p.At, "down")
		for i := range t.Grants {
			if g := &t.Grants[i]; g.Node == int(p.Node) && g.Gone == trace.Never {
				g.Gone = p.At
			}
		}
	case world.KindRestart:
		r.life(p.Node, p.At, "up")
	case world.KindPhase: // Healing thaws the frozen nodes.
		for i := range t.Nodes {
			if l := t.Nodes[i].Lives; l[len(l)-1].State == "up" && l[len(l)-1].From > p.At {
				r.life(int32(i), p.At, "up")
			}
		}
	case world.KindPause:
		r.life(p.Node, p.At, "frozen")
		r.life(p.Node, int64(p.A), "up")
	}
}

// sent adds a message to the trace.
func (r *Recorder) sent(p *noted) {
	w := r.w
	m := trace.Message{From: int(p.Node), To: trace.World, Sent: p.At, Arrived: trace.Never, Kind: "message"}
	var over *world.Conn
	n := len(r.t.Messages)
	switch p.Kind {
	case world.KindNoise:
		m.From, m.To, m.Kind, m.Channel, m.Arrived = trace.World, int(p.Node), "noise", effects.Channel(p.A).String(), p.At
	case world.KindReply:
		if p.A == 0 || p.A > uint64(len(w.Requests)) {
			return
		}
		q := &w.Requests[p.A-1]
		if q.Conn == nil {
			m.Arrived = p.At // The source of the noise does not wait for the reply.
			break
		}
		over = q.Conn
		m.To, m.Channel = int(over.Client), over.Channel.String()
		r.replies[askOf{over.ID, uint64(q.Corr)}] = n
	default:
		over = w.ConnOf(p.B)
		if over == nil {
			return
		}
		m.To, m.Channel = max(int(over.Server), trace.World), over.Channel.String()
		if p.Kind == world.KindPost {
			r.posts = append(r.posts, n)
		} else {
			r.sends[r.corrOf(p.Node, p.A)] = n
		}
	}
	if d := p.message; d != nil {
		m.Kind, m.Text, m.Refs = d.Kind, d.Text, d.refs
	}
	m.Lost = over != nil && (over.Dead || over.Closed)
	r.t.Messages = append(r.t.Messages, m)
	r.over = append(r.over, over)
}

// messageOf returns the index of the message to which a line refers, or -1 if there is none.
func (r *Recorder) messageOf(p *noted) int {
	w := r.w
	find := func(i int, ok bool) int {
		if !ok {
			return -1
		}
		return i
	}
	switch p.Kind {
	case world.KindSend:
		i, ok := r.sends[r.corrOf(p.Node, p.A)]
		return find(i, ok)
	case world.KindReceived:
		if p.C == 0 || p.C > uint64(len(w.Requests)) {
			return -1
		}
		if q := &w.Requests[p.C-1]; q.Conn != nil {
			i, ok := r.sends[corrOf{q.Conn.Client, q.Conn.Life, uint64(q.Corr)}]
			return find(i, ok)
		}
	case world.KindReplied:
		i, ok := r.replies[askOf{p.B, p.A}]
		return find(i, ok)
	case world.KindPosted:
		for _, i := range r.posts {
			if m := &r.t.Messages[i]; m.From == int(p.A) && slices.Contains(m.Refs, r.requestOfNumber(p.B)) {
				return i
			}
		}
	}
	return -1
}

func (r *names) requestOfNumber(n uint64) int {
	name := r.of.Request(n)
	if name == nil {
		return -1
	}
	return r.requestRef(name)
}

// lostMessages marks the messages that never arrived and can no longer arrive.
func (r *Recorder) lostMessages() {
	for i := range r.t.Messages {
		if m, c := &r.t.Messages[i], r.over[i]; m.Arrived == trace.Never && c != nil && (c.Dead || c.Closed) {
			m.Lost = true
		}
	}
}

// granted adds a grant to the trace.
func (r *Recorder) granted(p *noted) {
	n := r.w.Nodes[p.Node]
	id := effects.GrantID(p.A)
	g := n.Grants[id]
	if g == nil {
		return // An oracle rejected the grant.
	}
	t := trace.Grant{Ref: r.grantRef(n.ID, n.Life, id), Node: int(n.ID), Life: int(n.Life), Peer: trace.World, From: p.At,
		Lease: n.When(g.Ends), Revoked: trace.Never, Gone: trace.Never, Refs: r.grantRefs(n.ID, id)}
	if peer := r.of.LifeOf(g.Peer); peer != nil {
		t.Peer = int(peer.ID)
	}
	for _, page := range g.Pages {
		t.Pages = append(t.Pages, int(page.Index))
	}
	r.grants[grantOf{n.ID, n.Life, id}] = len(r.t.Grants)
	r.open = append(r.open, len(r.t.Grants))
	r.t.Grants = append(r.t.Grants, t)
}

// newTransfers adds the transfers that were submitted since the last line.
func (r *Recorder) newTransfers() {
	for i := len(r.t.Transfers); i < len(r.w.Transfers); i++ {
		t := r.w.Transfers[i]
		to := trace.World
		at := trace.Transfer{ID: t.ID, From: int(t.Local.Node.ID), To: to, Started: r.w.Now, Asked: trace.Never,
			Ended:   trace.Never,
			Settled: trace.Never, NotAfter: t.Local.Node.When(t.NotAfter)}
		r.transfers[corrOf{t.Local.Node.ID, t.Local.Life, uint64(t.Corr)}] = i
		if t.Remote != nil {
			at.To = int(t.Remote.Node.ID)
			at.Grant = r.grantRef(t.Remote.Node.ID, t.Remote.Life, t.Grant)
			at.Refs = r.transferRefs(t.ID, -1)
		}
		r.t.Transfers = append(r.t.Transfers, at)
	}
}

// moved updates the record of a transfer.
func (r *Recorder) moved(p *noted) {
	id := p.A
	if p.Kind == world.KindTransferDone || p.Kind == world.KindSettled {
		i, ok := r.transfers[r.corrOf(p.Node, p.A)]
		if !ok {
			return
		}
		id = uint64(i) + 1
	}
	if id == 0 || id > uint64(len(r.t.Transfers)) {
		return
	}
	t, live := &r.t.Transfers[id-1], r.w.Transfers[id-1]
	target := func() (pageOf, bool) {
		if p.B >= uint64(len(live.Pairs)) {
			return pageOf{}, false
		}
		if live.Read {
			return pageOf{int32(t.From), live.Pairs[p.B].Local.Index}, true
		}
		return pageOf{int32(t.To), live.Pairs[p.B].Remote.Index}, true
	}
	switch p.Kind {
	case world.KindAsk:
		t.Asked = p.At
	case world.KindCopy, world.KindStore, world.KindLoad:
		if page, ok := target(); ok {
			t.Stores = append(t.Stores, trace.Store{At: p.At, Page: int(page.index), Half: int(p.C)})
			r.storing[page] = p.Kind == world.KindCopy && p.C == 0 && !live.Read
		}
	case world.KindTransferDone:
		t.Ended, t.Code = p.At, effects.Code(p.B).String()
		if p.C == 1 {
			t.Settled = p.At
		}
	case world.KindSettled:
		t.Settled = p.At
	case world.KindLanded:
		for _, pair := range live.Pairs {
			delete(r.storing, pageOf{int32(t.To), pair.Remote.Index})
		}
	}
}

// endGrants ends the grants that have no page of the node left. A grant counts as long as the driver honours it,
// whatever the machine believes; on leased planes only the machine knows.
func (r *Recorder) endGrants(n *world.Node) {
	r.open = slices.DeleteFunc(r.open, func(i int) bool {
		g := &r.t.Grants[i]
		if g.Node != int(n.ID) || g.Gone != trace.Never {
			return g.Gone != trace.Never
		}
		for _, lent := range n.Pool.Lent {
			if r.grants[grantOf{n.ID, n.Life, lent.ID}] == i && r.w.Standing(n, lent) {
				return false
			}
		}
		for _, p := range g.Pages {
			pg, m := r.shown(n, p)
			id := m.Grant
			if !r.w.Setting.Leased {
				id = pg.Granted
			}
			if r.grants[grantOf{n.ID, n.Life, id}] == i && id != 0 {
				return false
			}
		}
		g.Gone = r.w.Now
		return true
	})
}
