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

// dueGrant is a grant that must end, because the writer is lost or the request was abandoned.
type dueGrant struct {
	grant      effects.GrantID
	writerLost bool
}

// recordUnwanted records the write grants in force that are no longer wanted since this step.
func (or *promptOracle) recordUnwanted(n *world.Node, state *promptState) {
	if len(state.abandonedJobs) > 0 {
		or.countJudged(checkAbandonedGrant)
	}
	if len(state.lostWriters) > 0 {
		or.countJudged(checkWriterLost)
	}
	for id, g := range n.Grants {
		if g.Read || g.Revoking || or.indexOfDue(n, id) >= 0 || !isWritable(n.Pool, g) {
			continue
		}
		if lost := slices.Contains(state.lostWriters, g.Peer); lost || g.Job > 0 && slices.Contains(state.abandonedJobs, g.Job) {
			state.dueGrants = append(state.dueGrants, dueGrant{id, lost})
		}
	}
	slices.SortFunc(state.dueGrants, func(a, b dueGrant) int { return cmp.Compare(a.grant, b.grant) }) // Independent of the map's order.
	queue := or.oracles().queue.stateOf(n)
	for i := range queue.pending {
		if o := &queue.pending[i]; o.reading && !o.dueAtOnce && o.job > 0 && slices.Contains(state.abandonedJobs, o.job) {
			o.unwanted, state.readsUnwanted = true, true
		}
	}
}

// verifyEnded checks, when the machine has no more work for this instant, that these grants have ended, and that the
// reads for abandoned requests were cancelled.
func (or *promptOracle) verifyEnded(n *world.Node, state *promptState) {
	later := 0
	for _, o := range state.dueGrants {
		g := n.Grants[o.grant]
		switch {
		case g == nil || g.Revoking || !isWritable(n.Pool, g):
			continue
		case isCompared(n.Pool, g): // The pages stay with the grant until they have been compared with their checksums.
			state.dueGrants[later] = o
			later++
			continue
		case o.writerLost:
			or.fail(checkWriterLost, "node %d does not revoke grant %d although the node was notified that the writer is lost",
				n.AsSubject(), n.GrantSubject(o.grant))
		default:
			or.fail(checkAbandonedGrant, "node %d does not revoke grant %d although request %q was abandoned",
				n.AsSubject(), n.GrantSubject(o.grant), oracle.Request(or.w.Jobs[g.Job-1].Name))
		}
		break
	}
	state.dueGrants, state.abandoningJobs = state.dueGrants[:later], state.abandoningJobs[:0]
	if !state.readsUnwanted {
		return
	}
	state.readsUnwanted = false
	queue := or.oracles().queue.stateOf(n)
	for i := range queue.pending {
		if o := &queue.pending[i]; o.unwanted && !o.cancelled {
			or.fail(checkAbandonedGrant, "node %d goes on reading under grant %d although request %q was abandoned",
				n.AsSubject(), or.w.Nodes[or.w.Jobs[o.job-1].Sender].GrantSubject(o.offerGrant), oracle.Request(or.w.Jobs[o.job-1].Name))
			return
		}
	}
}

// verifyRetry checks that a reply to a retry does not name a grant that must end because the peer was lost.
func (or *promptOracle) verifyRetry(n *world.Node, g *world.Grant, reply *protocol.AllocResponse) {
	if i := or.indexOfDue(n, g.ID); i >= 0 && or.stateOf(n).dueGrants[i].writerLost && !reply.AllocFailed && len(reply.RemoteIndexes) > 0 {
		or.fail(checkWriterLost, "node %d repeats grant %d in a reply although the node was notified that the writer is lost",
			n.AsSubject(), n.GrantSubject(g.ID))
	}
}

// verifyAbandoned checks that no grant is in force for a request that the machine reports as abandoned.
func (or *promptOracle) verifyAbandoned(n *world.Node, job int) {
	first := effects.GrantID(0)
	for id, g := range n.Grants {
		if !g.Read && g.Job == job+1 && !g.Revoking && isWritable(n.Pool, g) && !isCompared(n.Pool, g) && (first == 0 || id < first) {
			first = id
		}
	}
	or.stateOf(n).reportedJobs = append(or.stateOf(n).reportedJobs, job+1)
	if first != 0 {
		or.fail(checkAbandonedGrant, "node %d reports that request %q is abandoned, and does not revoke grant %d",
			n.AsSubject(), oracle.Request(or.w.Jobs[job].Name), n.GrantSubject(first))
	}
}

// indexOfDue returns the index of a grant among the grants that must end, and -1 if the grant need not end.
func (or *promptOracle) indexOfDue(n *world.Node, id effects.GrantID) int {
	return slices.IndexFunc(or.stateOf(n).dueGrants, func(o dueGrant) bool { return o.grant == id })
}

// isAbandoning reports whether n is abandoning the request of a job.
func (or *promptOracle) isAbandoning(n *world.Node, job int) bool {
	return slices.Contains(or.stateOf(n).abandoningJobs, job+1)
}

// removeAbandoned records that a request is not abandoned after all, for example because too many requests are being
// abandoned. The engine was told so, and what is in progress for the request goes on.
func (or *promptOracle) removeAbandoned(n *world.Node, job int) {
	state := or.stateOf(n)
	if i := slices.Index(state.abandonedJobs, job+1); i >= 0 {
		state.abandonedJobs = slices.Delete(state.abandonedJobs, i, i+1)
	}
}

// updateAbandoning records which requests the machine is abandoning from this step on. An engine may abandon a request
// twice: then the abandoning goes on after the first outcome until the second.
func (s *promptState) updateAbandoning() {
	s.abandoningJobs = append(s.abandoningJobs, s.abandonedJobs...)
	for _, job := range s.reportedJobs {
		if i := slices.Index(s.abandoningJobs, job); i >= 0 {
			s.abandoningJobs = slices.Delete(s.abandoningJobs, i, i+1)
		}
	}
	s.reportedJobs = s.reportedJobs[:0]
}
