package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// What is judged here.
var (
	checkRecallSame   = oracle.NewCheck("S24", "recalls asked again")
	checkRecallPrefix = oracle.NewCheck("S2", "prefixes that are leased")
	checkRecallDone   = oracle.NewCheck("S19", "dones of recalls")
	checkRecallNamed  = oracle.NewCheck("L2", "dones of recalls by name")
)

// recallOracle judges recalls: who may read until when, and that nothing of it stays.
type recallOracle struct {
	judge
	leases map[asking]effects.GrantID  `snap:"skip"`    // by who asked, of each life that is recalled from
	word   protocol.CacheQueryRequest  `snap:"scratch"` // as it is asked
	ask    protocol.CacheQueryRequest  `snap:"scratch"` // as it comes, and is answered in the same step
	reply  protocol.CacheQueryResponse `snap:"scratch"`
}

// asking is one operation of one life, asked of one life of a node.
type asking struct {
	node      int32
	life      uint32
	who       effects.Incarnation
	operation uint64
}

// begin empties it for a run.
func (or *recallOracle) begin() { or.leases = world.Emptied(or.leases) }

// saying notes a question as it leaves: a last word comes after all that reads under the lease.
func (or *recallOracle) saying(n *world.Node, c *world.Conn, body []byte) {
	m := &or.word
	if c.Channel != effects.ChannelQuery || m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	for _, id := range m.Ext.Done {
		or.judged(checkRecallDone, checkRecallNamed)
		if !pd.IsNameOf(n, effects.Incarnation(m.Ext.Incarnation)) {
			or.fail(checkRecallNamed, "node %d says that grant %d has ended in a name that is not its own",
				n.It(), n.ItsGrant(effects.GrantID(id)))
			return
		}
		for _, t := range or.w.Going.Transfers.Some {
			if t.Read && t.Reading && t.Local == n.Pool && uint64(t.Grant) == id && protocol.UUID(t.Link.Peer) == m.Ext.To {
				or.fail(checkRecallDone, "node %d says that grant %d has ended while transfer %d may still read",
					n.It(), n.ItsGrant(t.Grant), oracle.Transfer(t.ID))
				return
			}
		}
		for _, t := range or.w.Transfers {
			if t.Read && t.Under != nil && t.Local == n.Pool && uint64(t.Grant) == id {
				t.Under.Loan.Said = true
			}
		}
	}
}

// heard notes that an owner is told, by the reader itself, that a lease is finished with.
func (or *recallOracle) heard(n *world.Node, body []byte) {
	m := &or.ask
	if m.Decode(body, &pd.WireLimits) != nil {
		return
	}
	for _, id := range m.Ext.Done {
		g := n.Grants[effects.GrantID(id)]
		if g != nil && g.Read && protocol.UUID(g.Peer) == m.Ext.Incarnation &&
			pd.Believes(n, g.Peer, effects.Incarnation(m.Ext.To)) {
			or.all().offers.ended(n, g)
		}
	}
}

// answering checks an answer as it leaves: the pages are the first of those that were asked for, under a lease that is
// the only one of its operation.
func (or *recallOracle) answering(n *world.Node, r *world.Request, body []byte) {
	q, m := &or.ask, &or.reply
	if r.Channel != effects.ChannelQuery || m.Decode(body, &pd.WireLimits) != nil || m.Ext.Grant == 0 {
		return
	}
	or.judged(checkRecallSame, checkRecallPrefix)
	id := effects.GrantID(m.Ext.Grant)
	key := asking{n.ID, n.Life, effects.Incarnation(q.Ext.Incarnation), q.Ext.Operation}
	if or.leases == nil {
		or.leases = map[asking]effects.GrantID{}
	}
	g := n.Grants[or.leases[key]]
	if g != nil && g.ID != id && or.w.Standing(n, g) {
		or.fail(checkRecallSame, "node %d leases to operation %d under grant %d what it leased to it under %d",
			n.It(), key.operation, n.ItsGrant(id), n.ItsGrant(g.ID))
		return
	}
	if or.leases[key] != id {
		or.all().prompt.leasing(n, key.who, id)
	}
	or.leases[key] = id
	if g = n.Grants[id]; g == nil || !g.Read {
		or.fail(checkRecallSame, "node %d answers with grant %d, which it never gave to read", n.It(), n.ItsGrant(id))
		return
	}
	if until := or.w.Clock(n).Add(effects.Duration(m.Ext.LeaseNS)); until > g.Ends {
		or.fail(checkRecallSame, "node %d says that grant %d stands for %d ns longer than it does",
			n.It(), n.ItsGrant(id), until.Sub(g.Ends))
		return
	}
	for i, p := range g.Pages {
		k, known := or.w.KeyNumber(q.Keys[min(i, len(q.Keys)-1)])
		if i >= len(q.Keys) || i >= len(m.CachedIndexes) || !known || g.Loan.Held[i].Key() != k ||
			m.CachedIndexes[i] != int64(p.Index) {
			or.fail(checkRecallPrefix, "node %d leases page %d under grant %d, which is not of chunk %d that was asked for",
				n.It(), n.ItsPage(p.Index), n.ItsGrant(id), i)
			return
		}
	}
}
