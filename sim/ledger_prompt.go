package sim

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What can be given back at once is: in the step in which a machine hears that nobody wants it, and not only when its
// time is over.

// What is judged here.
var (
	checkWriterLost  = oracle.NewCheck("L2", "grants of writers that are lost")
	checkLeftOut     = oracle.NewCheck("L2", "grants of pushes that left some out")
	checkUnwanted    = oracle.NewCheck("L2", "grants for abandoned requests")
	checkOfferGiven  = oracle.NewCheck("L2", "loans of puts that ended badly")
	checkAbandoned   = oracle.NewCheck("L2", "requests refused as abandoned")
	checkStagingIdle = oracle.NewCheck("L2", "staging pages of fetches that need them")
)

// promptOracle judges what is given back at once.
type promptOracle struct {
	judge
	perLife[promptLife]
}

// promptLife is what a machine hears in this step.
type promptLife struct {
	lost      []effects.Incarnation `snap:"scratch"` // peers that cannot write any more
	partly    []effects.GrantID     `snap:"scratch"` // under which a push has ended without some pages
	abandoned int                   `snap:"scratch"` // the job whose request nobody wants, from 1
	ended     []effects.Ticket      `snap:"scratch"` // puts that ended badly
	stopping  bool                  `snap:"skip"`    // reads of a fetch that is over go on: their batch keeps its pages
}

func (s *promptLife) empty() {
	*s = promptLife{lost: s.lost[:0], partly: s.partly[:0], ended: s.ended[:0]}
}

// peerLost notes that n's machine is told of a peer's end.
func (or *promptOracle) peerLost(n *node, peer effects.Incarnation) {
	if !or.w.plan.Leased && peer != (effects.Incarnation{}) {
		or.at(n).lost = append(or.at(n).lost, peer)
	}
}

// landedPartly notes that it is told of a push that has ended without some of its pages.
func (or *promptOracle) landedPartly(n *node, t *transfer, complete bool) {
	if g := n.grants[t.grant]; !or.w.plan.Leased && !complete && g != nil && g.peer == t.initiator {
		or.at(n).partly = append(or.at(n).partly, t.grant)
	}
}

// abandoned notes that it is told to abandon a job's request.
func (or *promptOracle) abandoned(n *node, job int) {
	or.at(n).abandoned = job + 1
	j := &or.w.jobs[job]
	j.abandoned, j.abandonedIn = or.w.now, n.life
}

// refused checks that a message which was refused as it came, as nobody wants its request, is of one that was abandoned
// no longer ago than that is remembered.
func (or *promptOracle) refused(n *node, w *waiter, body []byte) {
	m, reply := &or.truth().request, &or.truth().reply
	if !w.fresh || len(w.body) == 0 || reply.Decode(body, &wireLimits) != nil || !reply.HasExt ||
		effects.CodeFromWire(reply.Ext.Code) != effects.Cancelled ||
		m.Decode(w.body, &wireLimits) != nil || !m.HasExt {
		return
	}
	i := or.w.jobNamed(m.Ext.Request)
	if i >= uint64(len(or.w.jobs)) {
		return
	}
	or.judged(checkAbandoned)
	ttl := cmp.Or(n.cfg.AbandonTTL, 10*effects.Second)
	j := &or.w.jobs[i]
	if j.abandoned == 0 || j.abandonedIn != n.life || n.shows(or.w.now).Sub(n.shows(j.abandoned)) > ttl {
		or.fail(checkAbandoned, "node %d refuses what comes for request %q, which nobody has abandoned for long",
			n.it(), oracle.Request(j.name))
	}
}

// putEnded notes that it ends a put.
func (or *promptOracle) putEnded(n *node, e *effects.Deliver) {
	if n.pulls && !or.w.plan.Leased && e.Code != effects.OK {
		or.at(n).ended = append(or.at(n).ended, e.Ticket)
	}
}

// asked notes for which request a grant is.
func (or *promptOracle) asked(g *grant, w *waiter) {
	m := &or.truth().request
	if g != nil && len(w.body) > 0 && m.Decode(w.body, &wireLimits) == nil && m.HasExt && len(m.Ext.Request) > 0 {
		if i := or.w.jobNamed(m.Ext.Request); i < uint64(len(or.w.jobs)) {
			g.job = int(i) + 1
		}
	}
}

// afterStep checks that what was heard has had its effect.
func (or *promptOracle) afterStep(n *node, s *rank.Stats) {
	my := or.at(n)
	if len(my.lost) > 0 || len(my.partly) > 0 || my.abandoned > 0 {
		or.writes(n, my)
	}
	for _, t := range my.ended {
		or.loans(n, t)
	}
	my.lost, my.partly, my.abandoned, my.ended = my.lost[:0], my.partly[:0], 0, my.ended[:0]
	if n.delays && s.Staged > 0 {
		or.staging(n, s)
	}
}

// writes looks at the grants to write that stand.
func (or *promptOracle) writes(n *node, my *promptLife) {
	if my.abandoned > 0 {
		or.judged(checkUnwanted)
	}
	if len(my.lost) > 0 {
		or.judged(checkWriterLost)
	}
	if len(my.partly) > 0 {
		or.judged(checkLeftOut)
	}
	var found effects.GrantID
	for id, g := range n.grants { // The first by number, whatever the order.
		if g.read || g.revoking || found != 0 && id > found || !n.pool.standsUnder(g) {
			continue
		}
		if my.abandoned > 0 && g.job == my.abandoned || slices.Contains(my.lost, g.peer) || slices.Contains(my.partly, id) {
			found = id
		}
	}
	g := n.grants[found]
	switch {
	case g == nil:
	case slices.Contains(my.lost, g.peer):
		or.fail(checkWriterLost, "node %d lets grant %d stand although it was told that its writer is gone",
			n.it(), n.itsGrant(found))
	case slices.Contains(my.partly, found):
		or.fail(checkLeftOut, "node %d lets grant %d stand although its push has ended without some of its pages",
			n.it(), n.itsGrant(found))
	default:
		or.fail(checkUnwanted, "node %d lets grant %d stand although its request %q is abandoned",
			n.it(), n.itsGrant(found), oracle.Request(or.w.jobs[g.job-1].name))
	}
}

// standsUnder says whether a page may still be written under a grant.
func (p *pool) standsUnder(g *grant) bool {
	return slices.ContainsFunc(g.pages, func(x effects.Page) bool { return p.pages[x.Index].granted == g.id })
}

// loans checks that on planes which can take a loan back at once that of a put which has ended badly is.
func (or *promptOracle) loans(n *node, t effects.Ticket) {
	or.judged(checkOfferGiven)
	var found effects.GrantID
	for id, g := range n.grants {
		if g.read && g.loan.put == t && !g.revoking && !g.loan.revoked && (found == 0 || id < found) {
			found = id
		}
	}
	if found != 0 {
		or.fail(checkOfferGiven, "node %d lets grant %d stand although its put, ticket %d, has ended badly",
			n.it(), n.itsGrant(found), oracle.Ticket(t))
	}
}

// fetchEnded notes that n ends a fetch, of which reads may still be under way.
func (or *promptOracle) fetchEnded(n *node) { or.at(n).stopping = true }

// staging checks that fetches have no more staging pages than chunks that their engines do not have yet, but for those
// that something still touches.
func (or *promptOracle) staging(n *node, s *rank.Stats) {
	my, most, reads := or.at(n), 0, 0
	for _, t := range or.w.going.transfers.some {
		if t.read && t.local == n.pool && t.reading {
			reads += len(t.pairs)
		}
	}
	if my.stopping = my.stopping && reads > 0; my.stopping {
		or.void(checkStagingIdle)
		return
	}
	or.judged(checkStagingIdle)
	for _, t := range or.all().fetch.openFetches(n) {
		c := &or.w.commands[t-1]
		most += int(c.count - c.device.got)
	}
	for i := range n.pool.pages {
		most += min(n.pool.pages[i].scatters, 1)
	}
	if s.Staged > most {
		or.fail(checkStagingIdle, "node %d has %d staging pages, its fetches have use for %d", n.it(), s.Staged, most)
	}
}
