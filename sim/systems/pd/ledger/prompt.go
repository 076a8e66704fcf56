package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A machine may learn that a grant, a lease or a page is no longer wanted. If the machine can give the grant, lease or
// page back at once, the machine must do so before it has no more work for that instant, and not only when the time of
// the grant or lease is over. Until then the machine must give nothing new for the same peer or request.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkWriterLost  = oracle.NewCheck("L2", "grants of writers that are lost")
	checkLeftOut     = oracle.NewCheck("L2", "grants of pushes that left some out")
	checkUnwanted    = oracle.NewCheck("L2", "grants for abandoned requests")
	checkOfferGiven  = oracle.NewCheck("L2", "read leases of puts that ended badly")
	checkAbandoned   = oracle.NewCheck("L2", "requests refused as abandoned")
	checkReaderLost  = oracle.NewCheck("L2", "leases of readers that are lost")
	checkStagingIdle = oracle.NewCheck("L2", "staging pages of fetches that need them")
)

// promptOracle judges whether machines give back at once the grants, leases and pages that are no longer wanted (L2).
type promptOracle struct {
	judge
	perLife[promptLife]
}

func (*promptOracle) listen(l *oracle.Listen[promptOracle]) {
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e asked) { o.heard(e.node, e.channel, e.request, e.conn) })
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e world.LinkLost) { o.peerLost(e.Node, e.Peer, e.Theirs) })
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e world.LandedTold) {
		o.landedPartly(e.Node, e.Transfer, e.Complete)
	})
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e world.Transferring) {
		o.transferring(e.Node, e.Transfer, e.Effect)
	})
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e pd.Commanded) {
		if e.Command.Want == plan.WantAbandon {
			o.abandoned(e.Node, e.Command.Job)
		}
	})
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e pd.Outcome) {
		switch {
		case e.Command.Want != plan.WantAbandon:
		case e.Effect.Code == effects.OK:
			o.abandonEnded(e.Node, e.Command.Job)
		default:
			o.abandonRefused(e.Node, e.Command.Job)
		}
	})
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e pd.Fetched) { o.fetchEnded(e.Node) })
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e pd.PutEnded) { o.putEnded(e.Node, e.Effect) })
	oracle.On(l, func(o *promptOracle, _ *oracle.Call, e counted) { o.afterStep(e.node, e.stats) })
}

// promptLife records the notifications that a machine receives in the current step, and the consequences while the
// machine is busy.
type promptLife struct {
	lost      []effects.Incarnation `snap:"scratch"` // peers that can no longer write
	gone      []effects.Incarnation // lost peers that have not shaken hands again
	readers   []effects.Incarnation `snap:"scratch"` // peers that can no longer read
	partly    []effects.GrantID     `snap:"scratch"` // grants under which a push has ended without some pages
	abandoned []int                 `snap:"scratch"` // jobs of abandoned requests, counted from 1
	owed      []owed                // grants to give back, while the machine is busy
	ending    []int                 // jobs that the machine is abandoning, while the machine is busy
	reads     bool                  // reads for such jobs are in progress
	unread    []effects.GrantID     // read leases of lost readers, while the machine is busy
	agreed    []int                 `snap:"scratch"` // jobs that the machine reports as abandoned
	ended     []effects.Ticket      `snap:"scratch"` // puts that failed
	stopping  bool                  `snap:"skip"`    // reads of an ended fetch go on, and their batch keeps its pages
}

func (s *promptLife) startReply() {
	*s = promptLife{lost: s.lost[:0], readers: s.readers[:0], gone: s.gone[:0], partly: s.partly[:0],
		abandoned: s.abandoned[:0],
		owed:      s.owed[:0], ending: s.ending[:0], unread: s.unread[:0], agreed: s.agreed[:0],
		ended: s.ended[:0]}
}

// peerLost records that the machine of n is notified of a peer's end. If theirs is set, the lost link is the peer's
// link to n.
func (or *promptOracle) peerLost(n *world.Node, peer effects.Incarnation, theirs bool) {
	if or.w.Setting.Leased || peer == (effects.Incarnation{}) {
		return
	}
	my := or.at(n)
	my.lost = append(my.lost, peer)
	if theirs {
		my.readers = append(my.readers, peer)
	}
	if theirs && !slices.Contains(my.gone, peer) {
		my.gone = append(my.gone, peer)
	}
}

// heard records that a peer shakes hands. A lost peer must do that before the peer gets anything.
func (or *promptOracle) heard(n *world.Node, channel effects.Channel, request, conn uint64) {
	my := or.at(n)
	if len(my.gone) == 0 || channel != effects.ChannelInit {
		return
	}
	if or.w.Requests[request-1].Noise { // A machine cannot distinguish a stranger that uses a publicly known name from the peer.
		my.gone = my.gone[:0]
		return
	}
	c := or.w.ConnOf(conn & (1<<32 - 1))
	for _, l := range or.w.Links {
		if c != nil && l.From == c.Client && l.FromLife == c.Life && l.Target == n.Pool {
			my.gone = slices.DeleteFunc(my.gone, func(who effects.Incarnation) bool { return who == l.Us })
		}
	}
}

// granting checks that pages are granted only to a peer that is not lost.
func (or *promptOracle) granting(n *world.Node, e *world.Grant) {
	my := or.at(n)
	if len(my.gone) == 0 {
		return
	}
	or.judged(checkWriterLost)
	if slices.Contains(my.gone, e.Peer) {
		or.fail(checkWriterLost, "node %d gives grant %d to a writer although it was told that it is gone",
			n.It(), n.ItsGrant(e.ID))
	}
}

// transferring checks that an offer which is read on arrival comes from a peer that is not lost. A deferred offer may
// be read while the lease is in force, and chunks that were requested (recalled, or shared) are read over a link of n.
func (or *promptOracle) transferring(n *world.Node, t *world.Transfer, e *effects.Transfer) {
	asked := t.Under != nil && t.Under.Loan.Asked
	if my := or.at(n); e.Read && !n.Delays && !asked && slices.Contains(my.gone, e.Peer) {
		or.fail(checkWriterLost, "node %d reads from a peer with transfer %d although it was told that it is gone",
			n.It(), oracle.Transfer(t.ID))
	}
}

// leasing checks that a read lease on request is given only to a peer that is not lost.
func (or *promptOracle) leasing(n *world.Node, who effects.Incarnation, id effects.GrantID) {
	if slices.Contains(or.at(n).gone, who) {
		or.fail(checkWriterLost, "node %d leases under grant %d to a peer although it was told that it is gone",
			n.It(), n.ItsGrant(id))
	}
}

// landedPartly records that the machine is notified of a push that has ended without some pages.
func (or *promptOracle) landedPartly(n *world.Node, t *world.Transfer, complete bool) {
	if g := n.Grants[t.Grant]; !or.w.Setting.Leased && !complete && g != nil && g.Peer == t.Initiator {
		or.at(n).partly = append(or.at(n).partly, t.Grant)
	}
}

// abandoned records that the machine is told to abandon the request of a job.
func (or *promptOracle) abandoned(n *world.Node, job int) {
	or.at(n).abandoned = append(or.at(n).abandoned, job+1)
	j := &or.w.Jobs[job]
	j.Abandoned, j.AbandonedIn = or.w.Clock(n), n.Life
}

// refused checks a message that was refused on arrival because the request was abandoned: the engine must have
// abandoned the request, at most AbandonTTL ago.
func (or *promptOracle) refused(n *world.Node, w *waiter) {
	t := or.truth()
	m, reply := &t.request.m, &t.reply.m
	if !w.fresh || !t.asks || !t.tells || !m.HasExt || !reply.HasExt ||
		effects.CodeFromWire(reply.Ext.Code) != effects.Cancelled {
		return
	}
	i := or.w.JobNamed(m.Ext.Request)
	if i >= uint64(len(or.w.Jobs)) {
		return
	}
	or.judged(checkAbandoned)
	ttl := cmp.Or(pd.Its(n).Cfg.AbandonTTL, 10*effects.Second)
	j := &or.w.Jobs[i]
	if j.Abandoned == 0 || j.AbandonedIn != n.Life || or.w.Clock(n).Sub(j.Abandoned) > ttl {
		or.fail(checkAbandoned, "node %d refuses what comes for request %q, which nobody has abandoned for long",
			n.It(), oracle.Request(j.Name))
	}
}

// putEnded records that the machine ends a put.
func (or *promptOracle) putEnded(n *world.Node, e *effects.Deliver) {
	if n.Pulls && !or.w.Setting.Leased && e.Code != effects.OK {
		or.at(n).ended = append(or.at(n).ended, e.Ticket)
	}
}

// asked records the request that a grant is for, and checks that the machine is not abandoning that request.
func (or *promptOracle) asked(n *world.Node, g *world.Grant) {
	m := &or.truth().request.m
	if g != nil && or.truth().asks && m.HasExt && len(m.Ext.Request) > 0 {
		if i := or.w.JobNamed(m.Ext.Request); i < uint64(len(or.w.Jobs)) {
			g.Job = int(i) + 1
		}
	}
	if g == nil || g.Job == 0 || len(or.at(n).ending) == 0 {
		return
	}
	or.judged(checkUnwanted)
	if or.abandons(n, g.Job-1) {
		or.fail(checkUnwanted, "node %d gives grant %d although it is abandoning its request %q",
			n.It(), n.ItsGrant(g.ID), oracle.Request(or.w.Jobs[g.Job-1].Name))
	}
}

// afterStep checks that the notifications of the step have had the required effects.
func (or *promptOracle) afterStep(n *world.Node, s *rank.Stats) {
	my := or.at(n)
	if len(my.lost) > 0 || len(my.abandoned) > 0 {
		or.condemn(n, my)
	}
	if len(my.partly) > 0 {
		or.leftOut(n, my)
	}
	for _, t := range my.ended {
		or.loans(n, t)
	}
	if n.Lends && len(my.readers) > 0 {
		or.recalls(n, my)
	}
	my.readers = my.readers[:0]
	my.begun()
	my.lost, my.partly, my.abandoned, my.ended = my.lost[:0], my.partly[:0], my.abandoned[:0], my.ended[:0]
	if n.Delays && s.Staged > 0 {
		or.staging(n, s)
	}
	if !n.Busy {
		if len(my.unread) > 0 {
			or.unreadEnd(n, my)
		}
		or.ends(n, my)
	}
}

// leftOut checks that the grant of pages which a push left out ends in the step that reports the push.
func (or *promptOracle) leftOut(n *world.Node, my *promptLife) {
	or.judged(checkLeftOut)
	slices.Sort(my.partly)
	for _, id := range my.partly {
		if g := n.Grants[id]; g != nil && !g.Read && !g.Revoking && standsUnder(n.Pool, g) {
			or.fail(checkLeftOut, "node %d lets grant %d stand although its push has ended without some of its pages",
				n.It(), n.ItsGrant(id))
			return
		}
	}
}

// recalls records the read leases of peers with lost links. These leases must be revoked.
func (or *promptOracle) recalls(n *world.Node, my *promptLife) {
	or.judged(checkReaderLost)
	for _, g := range n.Pool.Lent {
		if stillRead(g) && slices.Contains(my.readers, g.Peer) && !slices.Contains(my.unread, g.ID) {
			my.unread = append(my.unread, g.ID)
		}
	}
	slices.Sort(my.unread) // Independent of the order in the pool.
}

// unreadEnd checks that these leases have ended when the machine has no more work for this instant.
func (or *promptOracle) unreadEnd(n *world.Node, my *promptLife) {
	var found effects.GrantID
	for _, g := range n.Pool.Lent {
		if stillRead(g) && slices.Contains(my.unread, g.ID) && (found == 0 || g.ID < found) {
			found = g.ID
		}
	}
	my.unread = my.unread[:0]
	if found != 0 {
		or.fail(checkReaderLost, "node %d lets grant %d stand although it was told that its reader is gone",
			n.It(), n.ItsGrant(found))
	}
}

// stillRead reports whether a peer may still read under a lease that the peer requested.
func stillRead(g *world.Grant) bool { return g.Loan.Asked && !g.Revoking && !g.Loan.Revoked }

// standsUnder reports whether any page may still be written under a grant.
func standsUnder(p *world.Pool, g *world.Grant) bool {
	return slices.ContainsFunc(g.Pages, func(x effects.Page) bool { return p.Pages[x.Index].Granted == g.ID })
}

// loans checks that the read lease of a failed put is revoked, on planes which can revoke a lease at once.
func (or *promptOracle) loans(n *world.Node, t effects.Ticket) {
	or.judged(checkOfferGiven)
	var found effects.GrantID
	for id, g := range n.Grants {
		if g.Read && g.Loan.Put == t && !g.Revoking && !g.Loan.Revoked && (found == 0 || id < found) {
			found = id
		}
	}
	if found != 0 {
		or.fail(checkOfferGiven, "node %d lets grant %d stand although its put, ticket %d, has ended badly",
			n.It(), n.ItsGrant(found), oracle.Ticket(t))
	}
}

// fetchEnded records that n ends a fetch. Reads of the fetch may still be in flight.
func (or *promptOracle) fetchEnded(n *world.Node) { or.at(n).stopping = true }

// staging checks that fetches have no more staging pages than chunks that their engines do not have yet, except for
// pages that something still touches.
func (or *promptOracle) staging(n *world.Node, s *rank.Stats) {
	my, most, reads := or.at(n), 0, 0
	for _, t := range or.w.Going.Transfers.Some {
		if t.Read && t.Local == n.Pool && t.Reading {
			reads += len(t.Pairs)
		}
	}
	if my.stopping = my.stopping && reads > 0; my.stopping {
		or.void(checkStagingIdle)
		return
	}
	or.judged(checkStagingIdle)
	for _, t := range or.all().fetch.openFetches(n) {
		c := &or.w.Commands[t-1]
		most += int(c.Count - c.Device.Got)
	}
	for i := range n.Pool.Pages {
		most += min(n.Pool.Pages[i].Scatters, 1)
	}
	if s.Staged > most {
		or.fail(checkStagingIdle, "node %d has %d staging pages, its fetches have use for %d", n.It(), s.Staged, most)
	}
}
