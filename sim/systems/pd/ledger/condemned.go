package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// A machine that learns that grants are no longer wanted may end the grants in several steps, with an immediate
// deadline. Between these steps the grants are in force, but the machine reports the grants to no peer. When the
// machine has no more work, or reports the request as abandoned, none of these grants may be in force.

// owed is a grant that must end, because the writer is lost or the request was abandoned.
type owed struct {
	grant effects.GrantID
	lost  bool
}

// condemn records the write grants in force that are no longer wanted since this step.
func (or *promptOracle) condemn(n *world.Node, my *promptLife) {
	if len(my.abandoned) > 0 {
		or.judged(checkUnwanted)
	}
	if len(my.lost) > 0 {
		or.judged(checkWriterLost)
	}
	for id, g := range n.Grants {
		if g.Read || g.Revoking || or.owes(n, id) >= 0 || !standsUnder(n.Pool, g) {
			continue
		}
		if lost := slices.Contains(my.lost, g.Peer); lost || g.Job > 0 && slices.Contains(my.abandoned, g.Job) {
			my.owed = append(my.owed, owed{id, lost})
		}
	}
	slices.SortFunc(my.owed, func(a, b owed) int { return cmp.Compare(a.grant, b.grant) }) // Independent of the map's order.
	queue := or.all().queue.at(n)
	for i := range queue.waiters {
		if o := &queue.waiters[i]; o.reading && !o.atOnce && o.job > 0 && slices.Contains(my.abandoned, o.job) {
			o.unwanted, my.reads = true, true
		}
	}
}

// ends checks, when the machine has no more work for this instant, that these grants have ended, and that the reads for
// abandoned requests were cancelled.
func (or *promptOracle) ends(n *world.Node, my *promptLife) {
	for _, o := range my.owed {
		g := n.Grants[o.grant]
		switch {
		case g == nil || g.Revoking || !standsUnder(n.Pool, g):
			continue
		case o.lost:
			or.fail(checkWriterLost, "node %d lets grant %d stand although it was told that its writer is gone",
				n.It(), n.ItsGrant(o.grant))
		default:
			or.fail(checkUnwanted, "node %d lets grant %d stand although its request %q is abandoned",
				n.It(), n.ItsGrant(o.grant), oracle.Request(or.w.Jobs[g.Job-1].Name))
		}
		break
	}
	my.owed, my.ending = my.owed[:0], my.ending[:0]
	if !my.reads {
		return
	}
	my.reads = false
	queue := or.all().queue.at(n)
	for i := range queue.waiters {
		if o := &queue.waiters[i]; o.unwanted && !o.stopped {
			or.fail(checkUnwanted, "node %d goes on reading what grant %d lends, although the request %q is abandoned",
				n.It(), or.w.Nodes[or.w.Jobs[o.job-1].Sender].ItsGrant(o.offer), oracle.Request(or.w.Jobs[o.job-1].Name))
			return
		}
	}
}

// again checks that a reply to a retry does not name a grant that must end because the peer was lost.
func (or *promptOracle) again(n *world.Node, g *world.Grant, reply *protocol.AllocResponse) {
	if i := or.owes(n, g.ID); i >= 0 && or.at(n).owed[i].lost && !reply.AllocFailed && len(reply.RemoteIndexes) > 0 {
		or.fail(checkWriterLost, "node %d tells grant %d again although it was told that its writer is gone",
			n.It(), n.ItsGrant(g.ID))
	}
}

// abandonEnded checks that no grant is in force for a request that the machine reports as abandoned.
func (or *promptOracle) abandonEnded(n *world.Node, job int) {
	first := effects.GrantID(0)
	for id, g := range n.Grants {
		if !g.Read && g.Job == job+1 && !g.Revoking && standsUnder(n.Pool, g) && (first == 0 || id < first) {
			first = id
		}
	}
	or.at(n).agreed = append(or.at(n).agreed, job+1)
	if first != 0 {
		or.fail(checkUnwanted, "node %d says that request %q is abandoned and lets its grant %d stand",
			n.It(), oracle.Request(or.w.Jobs[job].Name), n.ItsGrant(first))
	}
}

// owes returns the index of a grant among the grants that must end, and -1 if the grant need not end.
func (or *promptOracle) owes(n *world.Node, id effects.GrantID) int {
	return slices.IndexFunc(or.at(n).owed, func(o owed) bool { return o.grant == id })
}

// abandons reports whether n is abandoning the request of a job.
func (or *promptOracle) abandons(n *world.Node, job int) bool {
	return slices.Contains(or.at(n).ending, job+1)
}

// abandonRefused records that a request is not abandoned after all, for example because too many requests are being
// abandoned. The engine was told so, and what is in progress for the request goes on.
func (or *promptOracle) abandonRefused(n *world.Node, job int) {
	my := or.at(n)
	if i := slices.Index(my.abandoned, job+1); i >= 0 {
		my.abandoned = slices.Delete(my.abandoned, i, i+1)
	}
}

// begun records which requests the machine is abandoning from this step on. An engine may abandon a request twice: then
// the abandoning goes on after the first outcome until the second.
func (my *promptLife) begun() {
	my.ending = append(my.ending, my.abandoned...)
	for _, job := range my.agreed {
		if i := slices.Index(my.ending, job); i >= 0 {
			my.ending = slices.Delete(my.ending, i, i+1)
		}
	}
	my.agreed = my.agreed[:0]
}
