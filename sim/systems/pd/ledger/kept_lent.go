package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A node may keep chunks that a peer leases on request, in the same way as a deferred offer. The node may keep the
// chunks from the reply on, and must keep the chunks once the node has reported that to the engine.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkLentKept   = oracle.NewCheck("S9", "outcomes that say that chunks are kept")
	checkLentMissed = oracle.NewCheck("S9", "fetches of chunks that were said to be kept")
)

// lentAsk is a lookup for chunks without a reply, sent by a node that keeps chunks which peers lease.
type lentAsk struct {
	conn uint64
	corr effects.Corr `snap:"skip"`
	to   effects.Incarnation
	job  int
}

// asking records a lookup when the lookup is sent.
func (or *keptOracle) asking(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	m := &or.get
	if !n.Delays || c.Channel != effects.ChannelLookup || m.Decode(body, &pd.WireLimits) != nil || !m.HasExt ||
		!m.PullMode {
		return
	}
	my := or.at(n)
	my.asks = append(my.asks, lentAsk{c.ID, corr, effects.Incarnation(m.Ext.To), int(or.w.JobNamed(m.LookupID))})
}

// lent handles the reply when the reply reaches the node that sent the lookup: the node may keep the chunks in the
// reply, for no longer than the owner's lease.
func (or *keptOracle) lent(n *world.Node, c *world.Conn, corr effects.Corr, body []byte) {
	my := or.at(n)
	i := slices.IndexFunc(my.asks, func(a lentAsk) bool { return a.conn == c.ID && a.corr == corr })
	if i < 0 {
		return
	}
	ask := my.asks[i]
	my.asks = slices.Delete(my.asks, i, i+1)
	m := &or.lends
	if m.Decode(body, &pd.WireLimits) != nil || !m.HasExt || m.Ext.Grant == 0 || len(m.RemoteUUIDs) == 0 {
		return
	}
	owner := or.w.Buffers[effects.BufferID(m.RemoteUUIDs[0])] // Of the incarnation that lent, which may be over by now.
	if owner == nil || owner.Node.ID != c.Server {
		return
	}
	g := owner.Loan(effects.GrantID(m.Ext.Grant))
	if g == nil || !pd.IsNameOf(n, g.Peer) || !or.waited(n, ask.job) {
		return // A node does not keep chunks for which no engine waits.
	}
	k := keptOffer{loan: g, owner: owner, peer: ask.to, job: ask.job, at: or.w.Now, shaky: true, lent: true}
	for at, held := range g.Loan.Held {
		if !slices.ContainsFunc(k.chunks, func(c keptChunk) bool { return c.id == held.Key() }) {
			k.chunks = append(k.chunks, keptChunk{id: held.Key(), index: int64(at)})
		}
	}
	k.until = or.w.Clock(n).Add(pd.Its(n).Cfg.LeadMin)
	my.kept = append(my.kept, k)
}

// waited reports whether an engine waits for the outcome of a Bring that keeps chunks of a job.
func (or *keptOracle) waited(n *world.Node, job int) bool {
	return slices.ContainsFunc(or.w.Undone.Some, func(t effects.Ticket) bool {
		c := &or.w.Commands[t-1]
		b, is := c.Body.(*p2p.Bring)
		return is && b.Mode == p2p.Delayed && c.Node == n.ID && c.Life == n.Life && c.Job == job && !c.Over
	})
}

// told checks the outcome that reports to an engine how many chunks are ready or kept. Each of these chunks must be
// ready or kept, and a kept chunk must stay for the promised time.
func (or *keptOracle) told(n *world.Node, e *effects.Deliver, c *pd.Command) {
	my, ids := or.at(n), or.w.Jobs[c.Job].Ids
	for i := range min(int(e.Hits), len(ids)) {
		// A draining node drops its cache, possibly in the same step as this report.
		if _, here := pd.ReadyAt(n, or.w.Keys[ids[i]]); here || n.Draining {
			continue
		}
		if n.Thaws(or.w.Now) { // A chunk that was here may have left since, in the same step.
			or.void(checkLentKept)
			continue
		}
		or.judged(checkLentKept)
		has := slices.IndexFunc(my.kept, func(k keptOffer) bool {
			return k.lent && k.job == c.Job && or.stands(&k) &&
				slices.ContainsFunc(k.chunks, func(x keptChunk) bool { return x.id == ids[i] && !x.left })
		})
		if has < 0 {
			or.fail(checkLentKept, "node %d says that it keeps chunk %d of request %q, which nobody lends to it for that",
				n.It(), i, oracle.Request(or.w.Jobs[c.Job].Name))
			return
		}
		k := &my.kept[has]
		k.shaky = k.shaky && k.at != or.w.Now
		if left := or.w.Clock(k.owner.Node).Sub(k.loan.Ends) + pd.Its(n).Cfg.LeadMin; k.at == or.w.Now && left > 0 {
			or.fail(checkLentKept, "node %d keeps what grant %d lends although it is %d ns shorter than the least that is kept",
				n.It(), k.owner.Node.ItsGrant(k.loan.ID), left)
			return
		}
	}
	for i := range my.kept {
		k := &my.kept[i]
		for m := range k.chunks { // A chunk that was here already is not kept as well.
			if _, here := pd.ReadyAt(n, or.w.Keys[k.chunks[m].id]); here && k.lent && k.at == or.w.Now {
				k.chunks[m].perhaps = true
			}
		}
	}
}

// returned records the done message for a read lease when it is sent.
func (or *keptOracle) returned(n *world.Node, m *protocol.AscendBatchedLookupAndGetDoneMsg) {
	for i := range or.at(n).kept {
		k := &or.at(n).kept[i]
		if !k.lent || uint64(k.loan.ID) != m.Ext.Grant || !pd.IsNameOf(k.owner.Node, effects.Incarnation(m.Ext.To)) {
			continue
		}
		or.judged(checkLentMissed)
		if !n.Draining && or.sure(n, k) && or.openFor(n, k.job) == 0 &&
			slices.ContainsFunc(k.chunks, func(c keptChunk) bool { return !c.perhaps }) {
			or.fail(checkLentMissed, "node %d gives grant %d back although it said that it keeps more of its chunks",
				n.It(), k.owner.Node.ItsGrant(k.loan.ID))
		}
		k.over = true
	}
}

// openFor returns how many fetches of a job are pending.
func (or *keptOracle) openFor(n *world.Node, job int) (open int) {
	for _, t := range or.w.Undone.Some {
		if c := &or.w.Commands[t-1]; c.Want == plan.WantFetch && c.Node == n.ID && c.Life == n.Life && c.Job == job &&
			!c.Over {
			open++
		}
	}
	return open
}

// dropping records that n drops a link. The chunks that n keeps under leases over the link end.
func (or *keptOracle) dropping(n *world.Node, e *effects.Drop) {
	for _, l := range n.Links {
		if !n.Lends || l.ID != uint64(e.Link) {
			continue
		}
		or.outOfReach(n, l.Peer, effects.PeerLost)
		for i := range or.at(n).kept {
			k := &or.at(n).kept[i]
			k.ending = k.ending || k.lent && k.peer == l.Peer
		}
	}
}
