package recall

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A prefill engine that recalls reserves a page for each chunk of a request. The rank then reads the leading chunks
// that the decode node still has into these pages, and the engine would compute the remaining chunks. The chunks that
// earlier requests sent may still be on the decode node, or may have been evicted.

// wantRecall is the kind of the recall commands.
var wantRecall = plan.NewCommandKind(13, "recall", true)

// beginJob gives the rank a command that recalls the chunks of a job into the reserved pages.
func beginJob(w *pd.Cluster, n *world.Node, c *pd.Command) {
	j := &w.Jobs[c.Job]
	for _, p := range c.Pages { // Clear the engine's old content, which must not pass for recalled content.
		pg := &n.Pool.Pages[p.Index]
		for part := range pg.Stamps {
			pg.Stamps[part] = 0
		}
	}
	r := w.Nodes[j.Receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	t := w.GiveCommand(n, pd.Command{
		Kind: wantRecall, Job: c.Job, Pages: c.Pages, Target: j.Batches[0].Reserve, Body: &ops.Recall{
			Peer: ops.Peer{
				Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port, QueryPort: r.Addr(effects.ChannelQuery).Port,
			},
			Request: sourceRequest(w, j), Keys: j.Keys, Pages: c.Pages,
		},
	}, pd.InfoOf(n).Cfg.RecallTimeout)
	w.MaybeAbort(n, t)
}

// sourceRequest returns the name of the request that sent the first chunk which job j recalls, or the name of j itself
// if no request sent this chunk. A recall with that name reads the chunks that are kept for the request, and must leave
// the chunks there.
func sourceRequest(w *pd.Cluster, j *pd.Job) []byte {
	for i := range w.Jobs {
		if x := &w.Jobs[i]; !x.Flags[flowWord] && x.Receiver == j.Receiver && len(x.KeyNumbers) > 0 && x.KeyNumbers[0] == j.KeyNumbers[0] {
			return x.Name
		}
	}
	return j.Name
}

// handleOutcome handles the outcome of a recall. The pages are released now unless the rank still holds their memory.
func handleOutcome(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	if !e.Held {
		handleReturn(w, n, c)
	}
}

// handleReturn releases the pages after the rank has returned their memory to the engine.
func handleReturn(w *pd.Cluster, n *world.Node, c *pd.Command) {
	if pd.OnPutReturned.Report(&w.Panel, n.ID, pd.PutReturned{Node: n, Command: c}); w.Failure == nil {
		w.ReleaseReserve(n, c.Target)
	}
}
