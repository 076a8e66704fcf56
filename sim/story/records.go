package story

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/trace"
	"github.com/kvferry/kvferry/sim/world"
)

// updateRecords updates the records that span several journal lines: messages, transfers, grants, commands and the
// incarnations of a node.
func (r *Recorder) updateRecords(p *pendingLine) {
	w, t := r.w, r.t
	switch p.Kind {
	case world.KindCommand:
		ticket := effects.Ticket(p.A)
		r.commands[ticket] = len(t.Commands)
		t.Commands = append(t.Commands, trace.Command{Ticket: p.A, Node: int(p.Node), Kind: r.describer.DescribeCommand(ticket).Kind,
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
		r.addMessage(p)
	case world.KindReceived, world.KindReplied, world.KindProxyPost:
		if i := r.messageIndex(p); i >= 0 {
			t.Messages[i].Arrived = p.At
		}
		if p.Kind == world.KindProxyPost && len(r.posts) > 0 {
			r.posts = slices.DeleteFunc(r.posts, func(i int) bool { return t.Messages[i].Arrived == p.At })
		}
		p.message = nil // The trace has the content with the sent message.
	case world.KindGrant:
		r.addGrant(p)
	case world.KindRevoke:
		if i, ok := r.grants[grantKey{p.Node, w.Nodes[p.Node].Incarnation, effects.GrantID(p.A)}]; ok {
			t.Grants[i].Revoked = p.At
		}
	case world.KindSubmit, world.KindTransferRequest, world.KindCopy, world.KindStore, world.KindLoad, world.KindLanded,
		world.KindTransferDone, world.KindSettled:
		r.updateTransfer(p)
	case world.KindCrash, world.KindRankFailed:
		r.setNodeState(p.Node, p.At, "down")
		for i := range t.Grants {
			if g := &t.Grants[i]; g.Node == int(p.Node) && g.Unusable == trace.Never {
				g.Unusable = p.At
			}
		}
	case world.KindRestart:
		r.setNodeState(p.Node, p.At, "up")
	case world.KindPhase: // Healing thaws the frozen nodes.
		for i := range t.Nodes {
			if l := t.Nodes[i].States; l[len(l)-1].State == "up" && l[len(l)-1].From > p.At {
				r.setNodeState(int32(i), p.At, "up")
			}
		}
	case world.KindPause:
		r.setNodeState(p.Node, p.At, "frozen")
		r.setNodeState(p.Node, int64(p.A), "up")
	}
}

// addMessage adds a message to the trace.
func (r *Recorder) addMessage(p *pendingLine) {
	w := r.w
	m := trace.Message{From: int(p.Node), To: trace.NoNode, Sent: p.At, Arrived: trace.Never, Kind: "message"}
	var conn *world.Conn
	n := len(r.t.Messages)
	switch p.Kind {
	case world.KindNoise:
		m.From, m.To, m.Kind, m.Channel, m.Arrived = trace.NoNode, int(p.Node), "noise", effects.Channel(p.A).String(), p.At
	case world.KindReply:
		if p.A == 0 || p.A > uint64(len(w.Requests)) {
			return
		}
		q := &w.Requests[p.A-1]
		if q.Conn == nil {
			m.Arrived = p.At // The source of the noise does not wait for the reply.
			break
		}
		conn = q.Conn
		m.To, m.Channel = int(conn.Client), conn.Channel.String()
		r.replies[replyKey{conn.ID, uint64(q.Corr)}] = n
	default:
		conn = w.ConnOf(p.B)
		if conn == nil {
			return
		}
		m.To, m.Channel = max(int(conn.Server), trace.NoNode), conn.Channel.String()
		if p.Kind == world.KindPost {
			r.posts = append(r.posts, n)
		} else {
			r.sends[r.corrKeyOf(p.Node, p.A)] = n
		}
	}
	if d := p.message; d != nil {
		m.Kind, m.Text, m.Refs = d.Kind, d.Text, d.refs
	}
	m.Lost = conn != nil && (conn.Dead || conn.Closed)
	r.t.Messages = append(r.t.Messages, m)
	r.conns = append(r.conns, conn)
}

// messageIndex returns the index of the message to which a line refers, or -1 if there is none.
func (r *Recorder) messageIndex(p *pendingLine) int {
	w := r.w
	find := func(i int, ok bool) int {
		if !ok {
			return -1
		}
		return i
	}
	switch p.Kind {
	case world.KindSend:
		i, ok := r.sends[r.corrKeyOf(p.Node, p.A)]
		return find(i, ok)
	case world.KindReceived:
		if p.C == 0 || p.C > uint64(len(w.Requests)) {
			return -1
		}
		if q := &w.Requests[p.C-1]; q.Conn != nil {
			i, ok := r.sends[corrKey{q.Conn.Client, q.Conn.Incarnation, uint64(q.Corr)}]
			return find(i, ok)
		}
	case world.KindReplied:
		i, ok := r.replies[replyKey{p.B, p.A}]
		return find(i, ok)
	case world.KindProxyPost:
		for _, i := range r.posts {
			if m := &r.t.Messages[i]; m.From == int(p.A) && slices.Contains(m.Refs, r.requestRefOfNumber(p.B)) {
				return i
			}
		}
	}
	return -1
}

func (r *refTable) requestRefOfNumber(n uint64) int {
	name := r.describer.RequestName(n)
	if name == nil {
		return -1
	}
	return r.requestRef(name)
}

// markLostMessages marks the messages that never arrived and can no longer arrive.
func (r *Recorder) markLostMessages() {
	for i := range r.t.Messages {
		if m, c := &r.t.Messages[i], r.conns[i]; m.Arrived == trace.Never && c != nil && (c.Dead || c.Closed) {
			m.Lost = true
		}
	}
}

// addGrant adds a grant to the trace.
func (r *Recorder) addGrant(p *pendingLine) {
	n := r.w.Nodes[p.Node]
	id := effects.GrantID(p.A)
	g := n.Grants[id]
	if g == nil {
		return // An oracle rejected the grant.
	}
	t := trace.Grant{Ref: r.grantRef(n.ID, n.Incarnation, id), Node: int(n.ID), Incarnation: int(n.Incarnation), Peer: trace.NoNode,
		From:  p.At,
		Lease: n.InstantOf(g.ExpiresAt), Revoked: trace.Never, Unusable: trace.Never, Refs: r.grantRefs(n.ID, id)}
	if peer := r.describer.NodeOfIncarnation(g.Peer); peer != nil {
		t.Peer = int(peer.ID)
	}
	for _, page := range g.Pages {
		t.Pages = append(t.Pages, int(page.Index))
	}
	r.grants[grantKey{n.ID, n.Incarnation, id}] = len(r.t.Grants)
	r.openGrants = append(r.openGrants, len(r.t.Grants))
	r.t.Grants = append(r.t.Grants, t)
}

// addTransfers adds the transfers that were submitted since the last line.
func (r *Recorder) addTransfers() {
	for i := len(r.t.Transfers); i < len(r.w.Transfers); i++ {
		t := r.w.Transfers[i]
		to := trace.NoNode
		at := trace.Transfer{ID: t.ID, From: int(t.Local.Node.ID), To: to, Started: r.w.Now, Requested: trace.Never,
			Ended:   trace.Never,
			Settled: trace.Never, NotAfter: t.Local.Node.InstantOf(t.NotAfter)}
		r.transfers[corrKey{t.Local.Node.ID, t.Local.Incarnation, uint64(t.Corr)}] = i
		if t.Remote != nil {
			at.To = int(t.Remote.Node.ID)
			at.Grant = r.grantRef(t.Remote.Node.ID, t.Remote.Incarnation, t.Grant)
			at.Refs = r.transferRefs(t.ID, -1)
		}
		r.t.Transfers = append(r.t.Transfers, at)
	}
}

// updateTransfer updates the record of a transfer.
func (r *Recorder) updateTransfer(p *pendingLine) {
	id := p.A
	if p.Kind == world.KindTransferDone || p.Kind == world.KindSettled {
		i, ok := r.transfers[r.corrKeyOf(p.Node, p.A)]
		if !ok {
			return
		}
		id = uint64(i) + 1
	}
	if id == 0 || id > uint64(len(r.t.Transfers)) {
		return
	}
	t, transfer := &r.t.Transfers[id-1], r.w.Transfers[id-1]
	target := func() (pageKey, bool) {
		if p.B >= uint64(len(transfer.Pairs)) {
			return pageKey{}, false
		}
		if transfer.Read {
			return pageKey{int32(t.From), transfer.Pairs[p.B].Local.Index}, true
		}
		return pageKey{int32(t.To), transfer.Pairs[p.B].Remote.Index}, true
	}
	switch p.Kind {
	case world.KindTransferRequest:
		t.Requested = p.At
	case world.KindCopy, world.KindStore, world.KindLoad:
		if page, ok := target(); ok {
			t.Stores = append(t.Stores, trace.Store{At: p.At, Page: int(page.index), Half: int(p.C)})
			r.halfStored[page] = p.Kind == world.KindCopy && p.C == 0 && !transfer.Read
		}
	case world.KindTransferDone:
		t.Ended, t.Code = p.At, effects.Code(p.B).String()
		if p.C == 1 {
			t.Settled = p.At
		}
	case world.KindSettled:
		t.Settled = p.At
	case world.KindLanded:
		for _, pair := range transfer.Pairs {
			delete(r.halfStored, pageKey{int32(t.To), pair.Remote.Index})
		}
	}
}

// endGrants ends the grants that have no page of the node left. A grant counts as long as the driver honours it,
// whatever the machine believes; on leased planes only the machine knows.
func (r *Recorder) endGrants(n *world.Node) {
	r.openGrants = slices.DeleteFunc(r.openGrants, func(i int) bool {
		g := &r.t.Grants[i]
		if g.Node != int(n.ID) || g.Unusable != trace.Never {
			return g.Unusable != trace.Never
		}
		for _, lease := range n.Pool.ReadLeases {
			if r.grants[grantKey{n.ID, n.Incarnation, lease.ID}] == i && r.w.IsLeaseLive(n, lease) {
				return false
			}
		}
		for _, p := range g.Pages {
			pg, m := r.pageAndBelief(n, p)
			id := m.Grant
			if !r.w.Conditions.Leased {
				id = pg.Granted
			}
			if r.grants[grantKey{n.ID, n.Incarnation, id}] == i && id != 0 {
				return false
			}
		}
		g.Unusable = r.w.Now
		return true
	})
}
