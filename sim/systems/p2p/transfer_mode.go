package p2p

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Chunks that are brought may stay at the owner until the receiver fetches them.

// keepWord marks a share job of which the chunks stay at the owner until the receiver fetches them, unless the owner
// writes them.
var keepWord = plan.RegisterFlag(plan.FlowFlag{Name: "keep", CheckJob: func(_ *plan.Plan, j *plan.Job) string {
	if !j.Flags[flowWord] {
		return "keep needs share; leave out keep, or set share"
	}
	return ""
}})

// setRole sets the roles of a node that shares: the node lends chunks, and delays fetches if any job to the node has
// the word "keep".
func setRole(p *plan.Plan, n *world.Node) {
	n.LendsChunks = true
	n.KeepsOffers = slices.ContainsFunc(p.Jobs, func(j plan.Job) bool { return j.Flags[keepWord] && j.To == plan.Node(n.ID) })
}

// configureDelay configures the rank of a node that delays fetches.
func configureDelay(n *world.Node, c *rank.Config) {
	c.Delay, c.Keeps = false, n.KeepsOffers
}

// transferMode returns how the chunks of a job are transferred.
func transferMode(n *world.Node, j *pd.Job) ops.Mode {
	switch {
	case j.Flags[pushWord]:
		return ops.Push
	case n.KeepsOffers:
		return ops.Delayed
	}
	return ops.Pull
}

// takeChunks makes the engine get the chunks that arrived, or fetch the chunks that are kept at the owner.
func takeChunks(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	j := &w.Jobs[c.Job]
	switch {
	case e.Hits == 0:
	case transferMode(n, j) == ops.Delayed:
		if pd.OnKeepOutcome.Report(&w.Panel, n.ID, pd.KeepOutcome{Node: n, Effect: e, Command: c}); w.Failure != nil {
			return
		}
		j.FetchPrefix(w, int(e.Hits))
	default:
		j.GetChunks(w)
	}
}
