package pd

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/pd/recall"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// A prefill engine that recalls: it reserves a page for each chunk of a request, has read into them what the decode
// node still has of the first of them, and would compute the rest. What other requests brought is there, or not any
// more.

// recall has the chunks of a job read back, into pages that were reserved for them.
func (w *Cluster) recall(n *world.Node, e *effects.Deliver, c *Command) {
	j := &w.Jobs[c.Job]
	w.Jury.OnReserved(n, e, c)
	if w.Failure != nil {
		return
	}
	c.Pages = w.Stock.Spans.Keep(e.Pages)
	for _, p := range c.Pages { // What the engine had there is not what is read.
		pg := &n.Pool.Pages[p.Index]
		for part := range pg.Stamps {
			pg.Stamps[part] = 0
		}
	}
	r := w.Nodes[j.Receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	t := w.Give(n, Command{
		Want: plan.WantRecall, Job: c.Job, Pages: c.Pages, Target: j.Batches[0].reserve, Body: &recall.Recall{
			Peer: recall.Peer{
				Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port, QueryPort: r.Addr(effects.ChannelQuery).Port,
			},
			Request: w.broughtFor(j), Keys: j.Keys, Pages: c.Pages,
		},
	}, Its(n).Cfg.RecallTimeout)
	w.maybeAbort(n, t)
}

// broughtFor is the request for which others brought the first chunk that a job would have back: so named a recall
// reads what is kept for that, and is not to consume it.
func (w *Cluster) broughtFor(j *Job) []byte {
	for i := range w.Jobs {
		if x := &w.Jobs[i]; !x.Recall && x.Receiver == j.Receiver && len(x.Ids) > 0 && x.Ids[0] == j.Ids[0] {
			return x.Name
		}
	}
	return j.Name
}

// recalled takes what a recall came to.
func (w *Cluster) recalled(n *world.Node, e *effects.Deliver, c *Command) {
	w.Jury.OnRecalled(n, e, c)
	if w.Failure == nil && !e.Held {
		w.recallReturned(n, c)
	}
}

// recallReturned gives the pages back once they are the engine's.
func (w *Cluster) recallReturned(n *world.Node, c *Command) {
	if w.Jury.OnReturned(n, c); w.Failure == nil {
		w.giveRelease(n, c.Target, w.bodies.releases.One(ops.Release{Reserved: c.Target}))
	}
}

// Recalls says whether what a Reserve gave is for a recall to read into.
func (w *Cluster) Recalls(reserve effects.Ticket) bool {
	return reserve != 0 && w.Jobs[w.Commands[reserve-1].Job].Recall
}

// Corrupts says whether messages of this world may arrive as nobody wrote them, or planes refuse what they were given.
func (w *Cluster) Corrupts() bool {
	for _, f := range []plan.Fault{
		plan.FaultCorruptRequest, plan.FaultCorruptReply, plan.FaultRefused, plan.FaultHandshake, plan.FaultPushRefused,
		plan.FaultImport,
	} {
		if w.Setting.Rates[f] > 0 {
			return true
		}
		for _, s := range w.Source.Strikes {
			if s.Fault == f {
				return true
			}
		}
	}
	return false
}
