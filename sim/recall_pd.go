package sim

import (
	"github.com/kvferry/kvferry/effects"
	ops "github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/fsm/pd/recall"
	"github.com/kvferry/kvferry/sim/plan"
)

// A prefill engine that recalls: it reserves a page for each chunk of a request, has read into them what the decode
// node still has of the first of them, and would compute the rest. What other requests brought is there, or not any
// more.

// recall has the chunks of a job read back, into pages that were reserved for them.
func (w *world) recall(n *node, e *effects.Deliver, c *command) {
	j := &w.jobs[c.job]
	w.oracles.onReserved(n, e, c)
	if w.failure != nil {
		return
	}
	c.pages = w.stock.spans.keep(e.Pages)
	for _, p := range c.pages { // What the engine had there is not what is read.
		pg := &n.pool.pages[p.Index]
		for part := range pg.stamps {
			pg.stamps[part] = 0
		}
	}
	r := w.nodes[j.receiver]
	init, alloc := r.addr(effects.ChannelInit), r.addr(effects.ChannelAlloc)
	t := w.give(n, command{
		want: plan.WantRecall, job: c.job, pages: c.pages, target: j.batches[0].reserve, body: &recall.Recall{
			Peer: recall.Peer{
				Host: init.Host, InitPort: init.Port, AllocPort: alloc.Port, QueryPort: r.addr(effects.ChannelQuery).Port,
			},
			Request: j.name, Keys: j.keys, Pages: c.pages,
		},
	}, n.cfg.RecallTimeout)
	w.maybeAbort(n, t)
}

// recalled takes what a recall came to.
func (w *world) recalled(n *node, e *effects.Deliver, c *command) {
	w.oracles.onRecalled(n, e, c)
	if w.failure == nil && !e.Held {
		w.recallReturned(n, c)
	}
}

// recallReturned gives the pages back once they are the engine's.
func (w *world) recallReturned(n *node, c *command) {
	if w.oracles.onReturned(n, c); w.failure == nil {
		w.giveRelease(n, c.target, w.stock.releases.one(ops.Release{Reserved: c.target}))
	}
}

// recalls says whether what a Reserve gave is for a recall to read into.
func (w *world) recalls(reserve effects.Ticket) bool {
	return reserve != 0 && w.jobs[w.commands[reserve-1].job].recall
}

// corrupts says whether messages of this world may arrive as nobody wrote them.
func (w *world) corrupts() bool {
	for _, f := range []plan.Fault{
		plan.FaultCorruptRequest, plan.FaultCorruptReply, plan.FaultRefused, plan.FaultHandshake,
	} {
		if w.plan.Rates[f] > 0 {
			return true
		}
		for _, s := range w.source.Strikes {
			if s.Fault == f {
				return true
			}
		}
	}
	return false
}
