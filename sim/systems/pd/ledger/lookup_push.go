package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A peer that has a shared chunk may write the chunk into pages that the requesting node grants with the lookup. The
// reply says that nothing writes any more: on leased planes the reply frees the pages.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkPushGranted   = oracle.NewCheck("S25", "pages that lookups grant")
	checkPushContent   = oracle.NewCheck("S2", "content of shared pushes")
	checkPushUnwritten = oracle.NewCheck("S3", "replies to lookups, at the writer")
	checkPushSettled   = oracle.NewCheck("S3", "replies to lookups, at the owner")
	checkPushShare     = oracle.NewCheck("S18", "shares of pushes")
)

// sentPushLookup is a lookup that grants pages and has no reply yet.
type sentPushLookup struct {
	conn  uint64
	corr  effects.Corr
	grant effects.GrantID
}

// receivedPushLookup is a lookup that grants pages, as recorded at the receiver.
type receivedPushLookup struct {
	pendingLookup
	grant effects.GrantID
}

// lookup returns the record that lookups of all kinds have in common.
func (x *receivedPushLookup) lookup() *pendingLookup { return &x.pendingLookup }

// verifyPushLookup checks a lookup that grants pages, when the lookup is sent.
func (or *lookupOracle) verifyPushLookup(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	m := &or.sentLookup
	if c.Channel != effects.ChannelLookup || m.Decode(body, &pd.WireLimits) != nil || !m.HasExt || m.PullMode {
		return
	}
	state, id := or.stateOf(n), effects.GrantID(m.Ext.Grant)
	or.oracles().queue.takeRequestGrant(n, id)
	or.countJudged(checkPushGranted)
	g := n.Grants[id]
	if g == nil || g.Read || !isWritable(n.Pool, g) {
		or.fail(checkPushGranted, "node %d requests writes under grant %d, which is not in force", n.AsSubject(),
			n.GrantSubject(id))
		return
	}
	or.lookupPages = or.lookupPages[:0]
	for i, index := range m.MemIndexes {
		page := n.Pool.PageNumber(effects.BufferID(m.BufferUUIDs[i]), uint32(index))
		at := g.PageIndex(page)
		or.lookupPages = append(or.lookupPages, page)
		if at < 0 || m.Ext.Generations[i] != uint64(g.Pages[at].Generation) {
			or.fail(checkPushGranted, "node %d requests a write of chunk %d to page %d, which is not under grant %d",
				n.AsSubject(), i, n.PageSubject(page), n.GrantSubject(id))
			return
		}
		if or.oracles().secondPools.verifyAskedPool(n, g, page); or.w.Failure != nil {
			return
		}
	}
	g.SharedKeys = g.SharedKeys[:0]
	for i := range g.Pages {
		k, _ := or.w.Keys.NumberOf(m.Keys[slices.Index(or.lookupPages, g.Pages[i].Index)])
		g.SharedKeys = append(g.SharedKeys, k)
	}
	state.sentPushes = append(state.sentPushes, sentPushLookup{c.ID, corr, id})
}

// verifyPush reports whether a transfer is a write of shared chunks, and checks the write when the owner's machine
// emits the Transfer. Each page holds the chunk that was requested for the target page, and no peer has more of these
// writes at a time than the peer leaves free.
func (or *lookupOracle) verifyPush(n *world.Node, t *world.Transfer) bool {
	to := t.Remote.Node
	g := to.Grants[t.Grant]
	if g == nil && !t.Read && n.LendsChunks && areReadable(n, t.Pairs) {
		or.countVoid(checkPushContent) // The requesting peer and its grant are gone: nothing lands there.
		for _, p := range t.Pairs {
			n.Pool.Pages[p.Local.Index].Readers++
			n.Pool.UpdateInUse(p.Local.Index)
		}
		return true
	}
	if t.Read || g == nil || !g.IsRequestedByOwner() || !n.LendsChunks {
		return false
	}
	or.countJudged(checkPushContent, checkPushShare)
	for _, p := range t.Pairs {
		at := g.PageIndex(p.Remote.Index)
		src := &n.Pool.Pages[p.Local.Index]
		if at < 0 || src.Stamps[0].Key() != g.SharedKeys[at] || src.LastGeneration != p.Local.Generation {
			or.fail(checkPushContent, "node %d writes page %d to page %d of node %d, and the page does not hold the chunk that was requested "+
				"for that page",
				n.AsSubject(), n.PageSubject(p.Local.Index), to.PageSubject(p.Remote.Index), to.AsSubject())
			return true
		}
		src.Readers++
		n.Pool.UpdateInUse(p.Local.Index)
	}
	ofPeer, total := 0, 0
	for _, x := range or.w.Active.Transfers.Items {
		if x.Local != n.Pool || x.Read || !x.LocalInUse || x == t {
			continue
		}
		if y := x.Remote.Node.Grants[x.Grant]; y != nil && y.IsRequestedByOwner() {
			if total++; y.Peer == g.Peer {
				ofPeer++
			}
		}
	}
	if limit := int(pd.InfoOf(n).Cfg.PushesMax); ofPeer >= limit-total {
		or.fail(checkPushShare, "node %d writes for a peer that already has %d of %d writes, of at most %d", n.AsSubject(), ofPeer,
			total, limit)
	}
	return true
}

// areReadable reports whether the pages that are to be read belong to no engine, and are of the expected generations.
func areReadable(n *world.Node, pairs []effects.Pair) bool {
	return !slices.ContainsFunc(pairs, func(p effects.Pair) bool {
		src := &n.Pool.Pages[p.Local.Index]
		return src.Reserved != 0 || src.LastGeneration != p.Local.Generation
	})
}

// verifyPushReply checks the reply to a lookup that granted pages, when the reply is sent: nothing writes the pages any
// more (S3).
func (or *lookupOracle) verifyPushReply(n *world.Node, request uint64, body []byte) {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.receivedPushes, func(x receivedPushLookup) bool { return x.request == request })
	if i < 0 {
		return
	}
	x := state.receivedPushes[i]
	if i == len(state.receivedPushes)-1 && !asksIntroduction(body) {
		state.receivedPushes = removeRetried(&or.oracleBase, state.receivedPushes, (*receivedPushLookup).lookup)
		i = len(state.receivedPushes) - 1
	}
	if state.receivedPushes = slices.Delete(state.receivedPushes, i, i+1); or.receivedReply.Decode(body, &pd.WireLimits) != nil {
		return // A reply that asks the peer to introduce itself says nothing of pages.
	}
	or.countJudged(checkPushUnwritten)
	for _, t := range or.w.Active.Transfers.Items {
		if !t.Read && t.LocalInUse && t.Local == n.Pool && t.Grant == x.grant && t.Link.Peer == x.peer {
			or.fail(checkPushUnwritten, "node %d replies while transfer %d may still write under grant %d",
				n.AsSubject(), oracle.Transfer(t.ID), t.Remote.Node.GrantSubject(x.grant))
			return
		}
	}
}

// handlePushReply handles the reply to a lookup that granted pages, at the node that granted the pages: on leased
// planes nothing writes the pages any more (S3).
func (or *lookupOracle) handlePushReply(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.sentPushes, func(x sentPushLookup) bool { return x.conn == c.ID && x.corr == corr })
	if i < 0 {
		return
	}
	id := state.sentPushes[i].grant
	state.sentPushes = slices.Delete(state.sentPushes, i, i+1)
	m, g := &or.receivedReply, n.Grants[id]
	if !or.w.Conditions.Leased || g == nil || m.Decode(body, &pd.WireLimits) != nil || !m.HasExt ||
		m.Ext.Incarnation != protocol.UUID(g.Peer) || effects.Code(m.Ext.Code) == effects.Forbidden {
		return // A reply that forbids the lookup says nothing of pages that an earlier copy of the lookup granted.
	}
	or.countJudged(checkPushSettled)
	for _, p := range g.Pages {
		pg := &n.Pool.Pages[p.Index]
		if pg.Granted != id {
			continue
		}
		if pg.Writers > 0 {
			or.fail(checkPushSettled, "node %d receives the reply for grant %d while a store into page %d is in flight",
				n.AsSubject(), n.GrantSubject(id), n.PageSubject(p.Index))
			return
		}
		pg.Granted = 0
		n.Pool.UpdateInUse(p.Index)
	}
}
