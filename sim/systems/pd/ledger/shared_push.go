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
	checkPushGranted  = oracle.NewCheck("S25", "pages that questions name")
	checkPushOf       = oracle.NewCheck("S2", "pushes of what is shared")
	checkPushAnswered = oracle.NewCheck("S3", "answers to questions, of who writes")
	checkPushHeard    = oracle.NewCheck("S3", "answers to questions, of what is written")
	checkPushShare    = oracle.NewCheck("S18", "shares of pushes")
)

// askedPush is a lookup that grants pages and has no reply yet.
type askedPush struct {
	conn  uint64
	corr  effects.Corr
	grant effects.GrantID
}

// camePush is a lookup that grants pages, as recorded at the receiver.
type camePush struct {
	question
	grant effects.GrantID
}

// its returns the record that lookups of all kinds have in common.
func (x *camePush) its() *question { return &x.question }

// asking checks a lookup that grants pages, when the lookup is sent.
func (or *sharedOracle) asking(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	m := &or.ask
	if c.Channel != effects.ChannelLookup || m.Decode(body, &pd.WireLimits) != nil || !m.HasExt || m.PullMode {
		return
	}
	my, id := or.at(n), effects.GrantID(m.Ext.Grant)
	or.all().queue.grantAsks(n, id)
	or.judged(checkPushGranted)
	g := n.Grants[id]
	if g == nil || g.Read || !standsUnder(n.Pool, g) {
		or.fail(checkPushGranted, "node %d asks to have chunks written under grant %d, which does not stand", n.It(),
			n.ItsGrant(id))
		return
	}
	or.places = or.places[:0]
	for i, index := range m.MemIndexes {
		page := n.Pool.At(effects.BufferID(m.BufferUUIDs[i]), uint32(index))
		at := g.Place(page)
		or.places = append(or.places, page)
		if at < 0 || m.Ext.Generations[i] != uint64(g.Pages[at].Generation) {
			or.fail(checkPushGranted, "node %d asks to have chunk %d written to page %d, which is not under grant %d",
				n.It(), i, n.ItsPage(page), n.ItsGrant(id))
			return
		}
		if or.all().second.asking(n, g, page); or.w.Failure != nil {
			return
		}
	}
	g.Shared = g.Shared[:0]
	for i := range g.Pages {
		k, _ := or.w.Keys.Number(m.Keys[slices.Index(or.places, g.Pages[i].Index)])
		g.Shared = append(g.Shared, k)
	}
	my.asked = append(my.asked, askedPush{c.ID, corr, id})
}

// transferring reports whether a transfer is a write of shared chunks, and checks the write when the owner's machine
// emits the Transfer. Each page holds the chunk that was requested for the target page, and no peer has more of these
// writes at a time than the peer leaves free.
func (or *sharedOracle) transferring(n *world.Node, t *world.Transfer) bool {
	to := t.Remote.Node
	g := to.Grants[t.Grant]
	if g == nil && !t.Read && n.Lends && ready(n, t.Pairs) {
		or.void(checkPushOf) // The requesting peer and its grant are gone: nothing lands there.
		for _, p := range t.Pairs {
			n.Pool.Pages[p.Local.Index].Readers++
			n.Pool.Touch(p.Local.Index)
		}
		return true
	}
	if t.Read || g == nil || len(g.Shared) == 0 || !n.Lends {
		return false
	}
	or.judged(checkPushOf, checkPushShare)
	for _, p := range t.Pairs {
		at := g.Place(p.Remote.Index)
		src := &n.Pool.Pages[p.Local.Index]
		if at < 0 || src.Stamps[0].Key() != g.Shared[at] || src.Last != p.Local.Generation {
			or.fail(checkPushOf, "node %d writes its page %d to page %d of node %d, which is not of the chunk that was asked "+
				"for there",
				n.It(), n.ItsPage(p.Local.Index), to.ItsPage(p.Remote.Index), to.It())
			return true
		}
		src.Readers++
		n.Pool.Touch(p.Local.Index)
	}
	of, all := 0, 0
	for _, x := range or.w.Going.Transfers.Some {
		if x.Local != n.Pool || x.Read || !x.Reading || x == t {
			continue
		}
		if y := x.Remote.Node.Grants[x.Grant]; y != nil && len(y.Shared) > 0 {
			if all++; y.Peer == g.Peer {
				of++
			}
		}
	}
	if most := int(pd.Its(n).Cfg.PushesMax); of >= most-all {
		or.fail(checkPushShare, "node %d writes for a peer for which it writes %d of %d already, of at most %d", n.It(), of,
			all, most)
	}
	return true
}

// ready reports whether the pages that are to be read belong to no engine, and are of the expected generations.
func ready(n *world.Node, pairs []effects.Pair) bool {
	return !slices.ContainsFunc(pairs, func(p effects.Pair) bool {
		src := &n.Pool.Pages[p.Local.Index]
		return src.Reserved != 0 || src.Last != p.Local.Generation
	})
}

// pushAnswered checks the reply to a lookup that granted pages, when the reply is sent: nothing writes the pages any
// more (S3).
func (or *sharedOracle) pushAnswered(n *world.Node, request uint64, body []byte) {
	my := or.at(n)
	i := slices.IndexFunc(my.came, func(x camePush) bool { return x.request == request })
	if i < 0 {
		return
	}
	x := my.came[i]
	if i == len(my.came)-1 && !introduces(body) {
		my.came = moot(&or.judge, my.came, (*camePush).its)
		i = len(my.came) - 1
	}
	if my.came = slices.Delete(my.came, i, i+1); or.told.Decode(body, &pd.WireLimits) != nil {
		return // A reply that asks the peer to introduce itself says nothing of pages.
	}
	or.judged(checkPushAnswered)
	for _, t := range or.w.Going.Transfers.Some {
		if !t.Read && t.Reading && t.Local == n.Pool && t.Grant == x.grant && t.Link.Peer == x.peer {
			or.fail(checkPushAnswered, "node %d answers while its transfer %d may still write under grant %d",
				n.It(), oracle.Transfer(t.ID), t.Remote.Node.ItsGrant(x.grant))
			return
		}
	}
}

// pushHeard handles the reply to a lookup that granted pages, at the node that granted the pages: on leased planes
// nothing writes the pages any more (S3).
func (or *sharedOracle) pushHeard(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	my := or.at(n)
	i := slices.IndexFunc(my.asked, func(x askedPush) bool { return x.conn == c.ID && x.corr == corr })
	if i < 0 {
		return
	}
	id := my.asked[i].grant
	my.asked = slices.Delete(my.asked, i, i+1)
	m, g := &or.told, n.Grants[id]
	if !or.w.Setting.Leased || g == nil || m.Decode(body, &pd.WireLimits) != nil || !m.HasExt ||
		m.Ext.Incarnation != protocol.UUID(g.Peer) {
		return
	}
	or.judged(checkPushHeard)
	for _, p := range g.Pages {
		pg := &n.Pool.Pages[p.Index]
		if pg.Granted != id {
			continue
		}
		if pg.Writers > 0 {
			or.fail(checkPushHeard, "node %d is answered under grant %d while a store into page %d is under way",
				n.It(), n.ItsGrant(id), n.ItsPage(p.Index))
			return
		}
		pg.Granted = 0
		n.Pool.Touch(p.Index)
	}
}
