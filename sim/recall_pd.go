package sim

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
func (w *cluster) recall(n *world.Node, e *effects.Deliver, c *command) {
	j := &w.jobs[c.job]
	w.oracles.onReserved(n, e, c)
	if w.Failure != nil {
		return
	}
	c.pages = w.Stock.Spans.Keep(e.Pages)
	for _, p := range c.pages { // What the engine had there is not what is read.
		pg := &n.Pool.Pages[p.Index]
		for part := range pg.Stamps {
			pg.Stamps[part] = 0
		}
	}
	r := w.Nodes[j.receiver]
	init, alloc := r.Addr(effects.ChannelInit), r.Addr(effects.ChannelAlloc)
	t := w.give(n, command{
		want: plan.WantRecall, job: c.job, pages: c.pages, target: j.batches[0].reserve, body: &recall.Recall{
			Peer: recall.Peer{
				Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port, QueryPort: r.Addr(effects.ChannelQuery).Port,
			},
			Request: w.broughtFor(j), Keys: j.keys, Pages: c.pages,
		},
	}, its(n).cfg.RecallTimeout)
	w.maybeAbort(n, t)
}

// broughtFor is the request for which others brought the first chunk that a job would have back: so named a recall
// reads what is kept for that, and is not to consume it.
func (w *cluster) broughtFor(j *job) []byte {
	for i := range w.jobs {
		if x := &w.jobs[i]; !x.recall && x.receiver == j.receiver && len(x.ids) > 0 && x.ids[0] == j.ids[0] {
			return x.name
		}
	}
	return j.name
}

// recalled takes what a recall came to.
func (w *cluster) recalled(n *world.Node, e *effects.Deliver, c *command) {
	w.oracles.onRecalled(n, e, c)
	if w.Failure == nil && !e.Held {
		w.recallReturned(n, c)
	}
}

// recallReturned gives the pages back once they are the engine's.
func (w *cluster) recallReturned(n *world.Node, c *command) {
	if w.oracles.onReturned(n, c); w.Failure == nil {
		w.giveRelease(n, c.target, w.bodies.releases.One(ops.Release{Reserved: c.target}))
	}
}

// recalls says whether what a Reserve gave is for a recall to read into.
func (w *cluster) recalls(reserve effects.Ticket) bool {
	return reserve != 0 && w.jobs[w.commands[reserve-1].job].recall
}

// corrupts says whether messages of this world may arrive as nobody wrote them.
func (w *cluster) corrupts() bool {
	for _, f := range []plan.Fault{
		plan.FaultCorruptRequest, plan.FaultCorruptReply, plan.FaultRefused, plan.FaultHandshake,
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
