package recall

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/rank/flows/recall"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A prefill engine that recalls: it reserves a page for each chunk of a request, has read into them what the decode
// node still has of the first of them, and would compute the rest. What other requests brought is there, or not any
// more.

// want are the commands of such an engine.
var want = plan.NewWant(13, "recall", true)

// begin has the chunks of a job read back, into pages that were reserved for them.
func begin(w *pd.Cluster, n *world.Node, c *pd.Command) {
	j := &w.Jobs[c.Job]
	for _, p := range c.Pages { // What the engine had there is not what is read.
		pg := &n.Pool.Pages[p.Index]
		for part := range pg.Stamps {
			pg.Stamps[part] = 0
		}
	}
	r := w.Nodes[j.Receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	t := w.Give(n, pd.Command{
		Want: want, Job: c.Job, Pages: c.Pages, Target: j.Batches[0].Reserve, Body: &ops.Recall{
			Peer: ops.Peer{
				Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port, QueryPort: r.Addr(effects.ChannelQuery).Port,
			},
			Request: broughtFor(w, j), Keys: j.Keys, Pages: c.Pages,
		},
	}, pd.Its(n).Cfg.RecallTimeout)
	w.MaybeAbort(n, t)
}

// broughtFor is the request for which others brought the first chunk that a job would have back: so named a recall
// reads what is kept for that, and is not to consume it.
func broughtFor(w *pd.Cluster, j *pd.Job) []byte {
	for i := range w.Jobs {
		if x := &w.Jobs[i]; !x.Said[word] && x.Receiver == j.Receiver && len(x.Ids) > 0 && x.Ids[0] == j.Ids[0] {
			return x.Name
		}
	}
	return j.Name
}

// ended takes what a recall came to.
func ended(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	if !e.Held {
		returned(w, n, c)
	}
}

// returned gives the pages back once they are the engine's.
func returned(w *pd.Cluster, n *world.Node, c *pd.Command) {
	if pd.OnReturned.Report(&w.Panel, n.ID, pd.Returned{Node: n, Command: c}); w.Failure == nil {
		w.Release(n, c.Target)
	}
}
