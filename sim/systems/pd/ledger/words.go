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

// The holder of a grant or lease sends a done message when the holder has finished reading or writing, because the time
// of a grant or lease is long. That applies to the leases of recalls, to the leases of shared chunks, to write grants
// that were not used, and to offers that were read. A single message is enough, whether the message is accepted or not.
// A holder that has no way to send the message sends none.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkWordRecall = oracle.NewCheck("L2", "leases of recalls, finished with and told")
	checkWordGrant  = oracle.NewCheck("L2", "grants finished with and told")
	checkWordOffer  = oracle.NewCheck("L2", "offers read and told")
	checkWordShared = oracle.NewCheck("L2", "loans of what is shared, finished with and told")
)

// wordsOracle judges done messages (L2).
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

// wordsLife records the grants that peers gave to an incarnation of a node, and for which the node has not sent a done
// message.
type wordsLife struct {
	given []givenBy `snap:"skip"`
	up    []uint64  `snap:"skip"` // links with a completed handshake
}

func (s *wordsLife) startReply() { s.given, s.up = s.given[:0], s.up[:0] }

// forget removes a grant of an owner.
func (s *wordsLife) forget(owner int32, id effects.GrantID) {
	s.given = slices.DeleteFunc(s.given, func(x givenBy) bool { return x.owner == owner && x.grant == id })
}

// way is the destination of a done message: the owner and the channel.
type way struct {
	owner   int32
	channel effects.Channel
}

// givenBy is a grant of an incarnation of a peer, with facts that may have prevented the holder from sending a done
// message.
type givenBy struct {
	way
	grant  effects.GrantID
	life   uint32
	frozen int64 `snap:"skip"` // how long the holder had been frozen by then
	closed int   `snap:"skip"` // connections to the owner that were closed by then, which are no obstacle any more
	slow   bool  `snap:"skip"` // something took so long that the done message may have been given up
}

// linked records that a handshake completed.
func (or *wordsOracle) linked(n *world.Node, link uint64) { or.at(n).up = append(or.at(n).up, link) }

// heard records a grant or a lease in a reply, over a link that is up. A reply during a new handshake belongs to a
// request from before the handshake: nothing is read or written under the grant, and a retry may get a different grant.
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

// gives records a grant, unless the grant is recorded already.
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

// failed reports whether a connection could have carried n's done message, and failed.
func (x *givenBy) failed(n *world.Node, c *world.Conn) bool {
	return c.Client == n.ID && c.Life == n.Life && c.Server == x.owner && c.Channel == x.channel &&
		(!c.Up || c.Channel != effects.ChannelDone && (c.Dead || c.Closed))
}

// opened records that a connection took long to be made.
func (or *wordsOracle) opened(n *world.Node, ev *effects.Opened) {
	c := or.w.ConnOf(uint64(ev.Conn))
	if ev.Code == effects.OK && c != nil && 2*or.w.Clock(n).Sub(c.Opened) > pd.Its(n).Cfg.ReplyTimeout {
		or.slows(n, way{c.Server, c.Channel})
	}
}

// waited records a request with a slow reply. A done message may wait behind the request until the lease is over.
func (or *wordsOracle) waited(n *world.Node, c *world.Conn, asked effects.Time) {
	if 8*or.w.Clock(n).Sub(asked) > pd.Its(n).Cfg.ReplyTimeout {
		or.slows(n, way{c.Server, c.Channel})
	}
}

// slows records, for the grants with the given destination of done messages, that something took long.
func (or *wordsOracle) slows(n *world.Node, x way) {
	for i := range or.at(n).given {
		if g := &or.at(n).given[i]; g.way == x {
			g.slow = true
		}
	}
}

// linkedTo reports whether n has a link to the pages of a node's current incarnation, with a completed handshake.
func (or *wordsOracle) linkedTo(n, owner *world.Node) bool {
	return slices.ContainsFunc(n.Links, func(l *world.Link) bool {
		return l.Given && !l.Told && !l.Dropped && l.Target == owner.Pool && slices.Contains(or.at(n).up, l.ID)
	})
}

// transferring records a read of an offer. For a write on a fenced plane, the plane itself reports the end.
func (or *wordsOracle) transferring(n *world.Node, t *world.Transfer) {
	owner := t.Remote.Node
	if g := owner.Grants[t.Grant]; t.Read && g != nil && !g.Loan.Asked {
		or.gives(n, way{owner.ID, effects.ChannelDone}, g)
	}
	if !t.Read && !or.w.Setting.Leased {
		or.at(n).forget(owner.ID, t.Grant)
	}
}

// said records a done message on a channel for a grant of the given owner, or of any owner if owner is plan.Nobody.
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

// wordOn returns the check for done messages on a channel.
func wordOn(channel effects.Channel) oracle.Check {
	//exhaustive:ignore
	switch channel { // Grants use no further channels.
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

// saying handles a message when the message is sent on a connection for requests, and records a done message.
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

// endTold records the done message of an offer.
func (or *wordsOracle) endTold(n *world.Node, m *protocol.PullDoneSignal) {
	or.said(n, plan.Nobody, effects.ChannelDone, effects.GrantID(m.Ext.Grant))
}

// down drops the grants that depend on links, because the oracle does not know which grants are finished.
func (or *wordsOracle) down(n *world.Node) {
	my := or.at(n)
	my.given = slices.DeleteFunc(my.given, func(x givenBy) bool { return x.channel != effects.ChannelDone })
}

// revoked drops a grant if the owner ends the grant while a request of the holder waits for a reply on the same
// channel. The done message could not be sent in time, and has no meaning now.
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

// finished drops a grant if the lease was over before the holder had finished, because the owner does not wait for the
// done message then.
func (or *wordsOracle) finished(t *world.Transfer) {
	n, owner := t.Local.Node, t.Remote.Node
	if g := owner.Grants[t.Grant]; !t.Read && g != nil && or.w.Clock(owner) > g.Ends {
		or.at(n).forget(owner.ID, t.Grant)
	}
}

// rests checks that no done message is missing when nothing is in flight.
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

// noWay reports whether a holder may have had no way to send a done message: a connection failed or took too long, the
// holder was frozen, or the tables are so small that a peer uses up the peer's share.
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
