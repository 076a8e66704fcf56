package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Who is finished with what a peer lets it read or write says so, for its time is long: a lease of a recall, a loan of
// what is shared, a grant that was not written, an offer that was read. One word is enough, taken or not; without a way
// to say it there is none.

// What is judged here.
var (
	checkWordRecall = oracle.NewCheck("L2", "leases of recalls, finished with and told")
	checkWordGrant  = oracle.NewCheck("L2", "grants finished with and told")
	checkWordOffer  = oracle.NewCheck("L2", "offers read and told")
	checkWordShared = oracle.NewCheck("L2", "loans of what is shared, finished with and told")
)

// wordsOracle judges last words.
type wordsOracle struct {
	judge
	perLife[wordsLife]
	query protocol.CacheQueryRequest  `snap:"scratch"`
	found protocol.CacheQueryResponse `snap:"scratch"`

	done protocol.AscendBatchedLookupAndGetDoneMsg `snap:"scratch"`
	lent protocol.AscendBatchedLookupAndGetRetMsg  `snap:"scratch"`
}

func (*wordsOracle) listen(l *oracle.Listen[wordsOracle]) {
	oracle.On(l, func(o *wordsOracle, c *oracle.Call, e *effects.Opened) { o.opened(o.node(c), e) })
	oracle.On(l, func(o *wordsOracle, _ *oracle.Call, e world.Replied) {
		o.waited(e.Node, e.Conn, e.Conn.Under(e.Corr).Asked)
		o.heard(e.Node, e.Conn, e.Body)
	})
	oracle.On(l, func(o *wordsOracle, _ *oracle.Call, e world.Sending) { o.saying(e.Node, e.Conn, e.Body) })
	oracle.On(l, func(o *wordsOracle, _ *oracle.Call, e world.TransferSettled) { o.finished(e.Transfer) })
	oracle.On(l, func(o *wordsOracle, _ *oracle.Call, e world.Revoked) { o.revoked(e.Node, e.Grant) })
	oracle.On(l, func(o *wordsOracle, _ *oracle.Call, e world.Transferring) { o.transferring(e.Node, e.Transfer) })
	oracle.On(l, func(o *wordsOracle, _ *oracle.Call, e pd.DoneSent) { o.endTold(e.Node, e.Message) })
	oracle.On(l, func(o *wordsOracle, _ *oracle.Call, e world.Rested) {
		if o.w.Healed {
			o.rests(e.Node, e.When)
		}
	})
	oracle.On(l, func(o *wordsOracle, _ *oracle.Call, e world.Observed) {
		switch e.Effect.Fact {
		case effects.FactLinkUp:
			o.linked(e.Node, e.Effect.ID)
		case effects.FactLinkDown:
			o.down(e.Node)
		}
	})
}

// wordsLife is what peers told a life that it may read or write, and it has not said that it is finished with.
type wordsLife struct {
	given []givenBy `snap:"skip"`
	up    []uint64  `snap:"skip"` // links whose handshake ended well
}

func (s *wordsLife) empty() { s.given, s.up = s.given[:0], s.up[:0] }

// forget takes a grant of an owner's out.
func (s *wordsLife) forget(owner int32, id effects.GrantID) {
	s.given = slices.DeleteFunc(s.given, func(x givenBy) bool { return x.owner == owner && x.grant == id })
}

// A way is where a word is said.
type way struct {
	owner   int32
	channel effects.Channel
}

// givenBy is a grant of one life of a peer, and what may have kept its holder from saying its word since.
type givenBy struct {
	way
	grant  effects.GrantID
	life   uint32
	frozen int64 `snap:"skip"` // for which the holder had been by then
	closed int   `snap:"skip"` // connections that way that were closed by then: they keep nobody from anything any more
	slow   bool  `snap:"skip"` // something took so long that the word was perhaps given up
}

// linked notes that a handshake ended well.
func (or *wordsOracle) linked(n *world.Node, link uint64) { or.at(n).up = append(or.at(n).up, link) }

// heard notes a grant or a lease that an answer brings, over a link that stands. What is answered while hands are being
// shaken anew was asked before that: nothing is read or written of it, and who asks again may be given another one.
func (or *wordsOracle) heard(n *world.Node, c *world.Conn, body []byte) {
	id := effects.GrantID(0)
	//exhaustive:ignore
	switch c.Channel {
	case effects.ChannelQuery:
		if or.found.Decode(body, &pd.WireLimits) == nil && or.found.HasExt {
			id = effects.GrantID(or.found.Ext.Grant)
		}
	case effects.ChannelAlloc:
		if m, is := or.truth().asReply(body); is && m.HasExt {
			id = effects.GrantID(m.Ext.Grant)
		}
	case effects.ChannelLookup:
		if or.lent.Decode(body, &pd.WireLimits) == nil && or.lent.HasExt {
			id = effects.GrantID(or.lent.Ext.Grant)
		}
	}
	if id == 0 || c.Server < 0 || c.Closed {
		return
	}
	owner := or.w.Nodes[c.Server]
	g := owner.Grants[id]
	if g == nil || g.Bearer() || g.Read == (c.Channel == effects.ChannelAlloc) || !pd.IsNameOf(n, g.Peer) ||
		!or.linkedTo(n, owner) {
		return
	}
	or.gives(n, way{c.Server, c.Channel}, g)
}

// gives notes a grant, from now on or from before.
func (or *wordsOracle) gives(n *world.Node, by way, g *world.Grant) {
	my, owner := or.at(n), or.w.Nodes[by.owner]
	if slices.ContainsFunc(my.given,
		func(x givenBy) bool { return x.way == by && x.grant == g.ID && x.life == owner.Life }) {
		return
	}
	x := givenBy{way: by, grant: g.ID, life: owner.Life, frozen: n.Frozen}
	for _, c := range or.w.Conns {
		if x.failed(n, c) && c.Closed {
			x.closed++
		}
	}
	my.given = append(my.given, x)
}

// failed says whether a connection was a way of n's to say it, and failed.
func (x *givenBy) failed(n *world.Node, c *world.Conn) bool {
	return c.Client == n.ID && c.Life == n.Life && c.Server == x.owner && c.Channel == x.channel &&
		(!c.Up || c.Channel != effects.ChannelDone && (c.Dead || c.Closed))
}

// opened notes a connection that took long to be made.
func (or *wordsOracle) opened(n *world.Node, ev *effects.Opened) {
	c := or.w.ConnOf(uint64(ev.Conn))
	if ev.Code == effects.OK && c != nil && 2*or.w.Clock(n).Sub(c.Opened) > pd.Its(n).Cfg.ReplyTimeout {
		or.slows(n, way{c.Server, c.Channel})
	}
}

// waited notes a question whose answer took long: a word waits behind it, perhaps until its grant's lease is over.
func (or *wordsOracle) waited(n *world.Node, c *world.Conn, asked effects.Time) {
	if 8*or.w.Clock(n).Sub(asked) > pd.Its(n).Cfg.ReplyTimeout {
		or.slows(n, way{c.Server, c.Channel})
	}
}

func (or *wordsOracle) slows(n *world.Node, x way) {
	for i := range or.at(n).given {
		if g := &or.at(n).given[i]; g.way == x {
			g.slow = true
		}
	}
}

// linkedTo says whether n has a link to the pages of a node's present life, and has shaken hands over it.
func (or *wordsOracle) linkedTo(n, owner *world.Node) bool {
	return slices.ContainsFunc(n.Links, func(l *world.Link) bool {
		return l.Given && !l.Told && !l.Dropped && l.Target == owner.Pool && slices.Contains(or.at(n).up, l.ID)
	})
}

// transferring notes what is read of an offer; of what is written on a fenced plane the plane itself tells the end.
func (or *wordsOracle) transferring(n *world.Node, t *world.Transfer) {
	owner := t.Remote.Node
	if g := owner.Grants[t.Grant]; t.Read && g != nil && !g.Loan.Asked {
		or.gives(n, way{owner.ID, effects.ChannelDone}, g)
	}
	if !t.Read && !or.w.Setting.Leased {
		or.at(n).forget(owner.ID, t.Grant)
	}
}

// said notes a word, on a channel, of a grant that an owner gave, or that any did.
func (or *wordsOracle) said(n *world.Node, owner int32, channel effects.Channel, id effects.GrantID) {
	my := or.at(n)
	was := len(my.given)
	my.given = slices.DeleteFunc(my.given, func(x givenBy) bool {
		return x.grant == id && x.channel == channel && (x.owner == owner || owner == plan.Nobody)
	})
	if len(my.given) < was {
		or.judged(wordOn(channel))
	}
}

// wordOn is what is judged of the words on a channel.
func wordOn(channel effects.Channel) oracle.Check {
	//exhaustive:ignore
	switch channel { // There are no others.
	case effects.ChannelQuery:
		return checkWordRecall
	case effects.ChannelAlloc:
		return checkWordGrant
	case effects.ChannelLookup:
		return checkWordShared
	default:
		return checkWordOffer
	}
}

// saying takes a word as it leaves on a connection where it is answered.
func (or *wordsOracle) saying(n *world.Node, c *world.Conn, body []byte) {
	if len(or.at(n).given) == 0 {
		return
	}
	if m := &or.query; c.Channel == effects.ChannelQuery && m.Decode(body, &pd.WireLimits) == nil {
		for _, id := range m.Ext.Done {
			or.said(n, c.Server, c.Channel, effects.GrantID(id))
		}
	}
	if c.Channel == effects.ChannelAlloc {
		if m, is := or.truth().asRequest(body); is {
			for _, id := range slices.Concat(m.Ext.Commit, m.Ext.Abort) {
				or.said(n, c.Server, c.Channel, effects.GrantID(id))
			}
		}
	}
	if m := &or.done; c.Channel == effects.ChannelLookup && m.Decode(body, &pd.WireLimits) == nil {
		or.said(n, c.Server, c.Channel, effects.GrantID(m.Ext.Grant))
	}
}

// endTold takes the word that an offer is not read any more.
func (or *wordsOracle) endTold(n *world.Node, m *protocol.PullDoneSignal) {
	or.said(n, plan.Nobody, effects.ChannelDone, effects.GrantID(m.Ext.Grant))
}

// down forgets what links were needed for: nobody knows who is finished with what.
func (or *wordsOracle) down(n *world.Node) {
	my := or.at(n)
	my.given = slices.DeleteFunc(my.given, func(x givenBy) bool { return x.channel != effects.ChannelDone })
}

// revoked forgets a grant that its owner has ended while a question of its holder's waits for an answer where the word
// would have been said: it could not be said in time, and says nothing now.
func (or *wordsOracle) revoked(owner *world.Node, id effects.GrantID) {
	for _, n := range or.w.Nodes[:or.w.Ranks] {
		my := or.at(n)
		my.given = slices.DeleteFunc(my.given, func(x givenBy) bool {
			return x.grant == id && x.owner == owner.ID && slices.ContainsFunc(or.w.Conns, func(c *world.Conn) bool {
				return c.Client == n.ID && c.Life == n.Life && c.Server == x.owner && c.Channel == x.channel && c.Asking > 0
			})
		})
	}
}

// finished forgets a grant whose lease was over before its holder was finished with it: its owner does not wait for
// that.
func (or *wordsOracle) finished(t *world.Transfer) {
	n, owner := t.Local.Node, t.Remote.Node
	if g := owner.Grants[t.Grant]; !t.Read && g != nil && or.w.Clock(owner) > g.Ends {
		or.at(n).forget(owner.ID, t.Grant)
	}
}

// rests checks that nothing was left unsaid when all is quiet.
func (or *wordsOracle) rests(n *world.Node, when string) {
	my := or.at(n)
	for _, x := range my.given {
		owner := or.w.Nodes[x.owner]
		if !owner.Up || owner.Life != x.life || or.noWay(n, &x) {
			or.void(wordOn(x.channel))
			continue
		}
		or.fail(wordOn(x.channel), "node %d has never said that it is finished with grant %d of node %d, %s",
			n.It(), owner.ItsGrant(x.grant), owner.It(), when)
		return
	}
	my.given = my.given[:0]
}

// noWay says whether a holder may have had no way to say its word since it was given what it is about: a connection
// failed, or took too long, it was frozen itself, or its tables are so small that a peer has its share of them.
func (or *wordsOracle) noWay(n *world.Node, x *givenBy) bool {
	cfg := &pd.Its(n).Cfg
	if x.slow || n.Frozen != x.frozen || x.channel == effects.ChannelDone && cmp.Or(cfg.GrantsMax, 4096) < 16 {
		return true
	}
	failed := 0
	for _, c := range or.w.Conns {
		if x.failed(n, c) {
			failed++
		}
	}
	return failed > x.closed
}
