package p2p

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/p2p"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// wantLocate is the kind of the commands by which an engine asks directories for the locations of chunks. An engine
// that missed chunks tries again; see maybeRetry.
var wantLocate = plan.NewCommandKind(16, "locate", false)

// maybeLocate makes an engine sometimes ask how many chunks of a job exist, before the engine brings the chunks.
func maybeLocate(w *pd.Cluster, n *world.Node, j *pd.Job) {
	d := draw.Hash(w.Seed, draw.Engine, uint64(j.Index)<<8|uint64(j.CommandCounts[wantBring]), 22)
	if draw.IsFixed(w.Seed) || !d.ChancePermille(300) {
		return
	}
	t := w.GiveCommand(n, pd.Command{Kind: wantLocate, Job: j.Index, Body: &ops.Locate{Keys: j.Keys}}, pd.InfoOf(n).Cfg.BringTimeout)
	w.MaybeAbort(n, t)
}

// maybeRetry makes an engine that missed a chunk sometimes start the job again soon.
func maybeRetry(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	j := &w.Jobs[c.Job]
	if !j.Flags[findWord] || e.Code != effects.NotFound || j.CommandCounts[wantBring] > 3 || w.Healed {
		return
	}
	chance := 600
	if e.Hits > 0 { // The directories are asked again for the rest.
		chance = 900
	}
	if d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 23); d.ChancePermille(chance) {
		w.QueueForNode(n, d.HeavyTail(100*effects.Millisecond), world.Delivery{Kind: world.KindStartJob, A: uint64(c.Job)})
	}
}

// locateOracle checks the outcomes of locate commands against the replies of the directories.
var locateOracle = oracle.New("located",
	"an engine that asks directories for the number of leading chunks gets a number that a directory replied, or "+
		"none", func(l *oracle.Subscriptions[directoryReplies]) {
		followQueries(l)
		oracle.On(l, func(h *directoryReplies, call *oracle.Call, e *effects.Deliver) {
			w := pd.ClusterOf(call)
			s := h.findSearch(int32(call.Node()), e.Ticket)
			if s == nil {
				return
			}
			a := h.findReply(s.node, s.hash)
			switch c := &w.Commands[e.Ticket-1]; {
			case c.Kind != wantLocate:
			case !slices.Contains(missCodes, e.Code):
				call.Fail("node %d asks for locations by ticket %d, which ends as %s", call.Node(), oracle.Ticket(e.Ticket),
					e.Code)
			case e.Hits > 0 && (e.Code != effects.OK || a == nil || a.countBits>>min(e.Hits, 63)&1 == 0):
				call.Fail("node %d is told by ticket %d that a peer has %d chunks, and no directory said so",
					call.Node(), oracle.Ticket(e.Ticket), e.Hits)
			}
			h.removeSearch(s)
		})
	})
