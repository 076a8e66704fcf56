package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A fetch that fails needs its reads no more. Each of them, from whichever source, is cancelled in the same step, so
// that the staging pages and the leases of the sources become free early.

var checkReadStopped = oracle.NewCheck("L2", "reads of fetches that have failed")

// recordRead records a read of a fetch when the read starts. The reads of brought and recalled chunks, and those of a
// receiver that defers no offers, belong to no fetch.
func (or *fetchOracle) recordRead(n *world.Node, t *world.Transfer) {
	if n.KeepsOffers && t.Read && t.Lease != nil && !t.Lease.Lease.OnRequest {
		state := or.stateOf(n)
		state.reads = append(state.reads, t)
	}
}

// removeRead removes a read that ended, or whose cancellation was requested.
func (or *fetchOracle) removeRead(n *world.Node, t *world.Transfer) {
	state := or.stateOf(n)
	state.reads = slices.DeleteFunc(state.reads, func(x *world.Transfer) bool { return x == t })
}

// verifyStopped checks, after a step in which a fetch failed, that each read that goes on uncancelled is for a fetch
// that is not over. If another fetch wants the same chunk, the read may be for that fetch.
func (or *fetchOracle) verifyStopped(n *world.Node) {
	state := or.stateOf(n)
	failed := state.failed
	if state.failed = 0; failed == 0 {
		return
	}
	ids := or.chunksOf(&or.w.Commands[failed-1])
	for _, t := range state.reads {
		var wanted, ofFailed bool
		for _, p := range t.Pairs {
			at := t.Lease.PageIndex(p.Remote.Index)
			if at < 0 {
				wanted = true
				continue
			}
			id := t.Lease.Lease.FirstStamps[at].Key()
			ofFailed = ofFailed || slices.Contains(ids, id)
			wanted = wanted || slices.ContainsFunc(or.openFetches(n), func(o effects.Ticket) bool {
				return slices.Contains(or.chunksOf(&or.w.Commands[o-1]), id)
			})
		}
		switch {
		case !ofFailed:
		case wanted:
			or.countVoid(checkReadStopped)
		default:
			or.fail(checkReadStopped, "node %d ends ticket %d (fetch) as %s, and does not cancel transfer %d, which reads for it",
				n.AsSubject(), oracle.Ticket(failed), or.w.Commands[failed-1].Code, oracle.Transfer(t.ID))
			return
		}
	}
	or.countJudged(checkReadStopped)
}

// recordFailed records that a fetch that had begun failed in this step.
func (or *fetchOracle) recordFailed(n *world.Node, e *effects.Deliver, c *pd.Command) {
	if e.Begun && e.Code != effects.OK && n.KeepsOffers && c.Node == n.ID {
		or.stateOf(n).failed = e.Ticket
	}
}
