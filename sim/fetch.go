package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/receiver"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
)

// fetchChunks is an engine wanting a request's chunks from one on, where its node keeps offers. It may find that
// it wants them only later, or not at all; now says that later has come.
func (w *world) fetchChunks(i, from int, now bool) {
	j := &w.jobs[i]
	n := w.nodes[j.receiver]
	name := plan.AboutCommand(j.request, plan.WantFetch, j.given[plan.WantFetch]+1)
	if late, yes := w.strikes(plan.FaultPutOff, name, 0); yes && !now {
		w.forNode(n, late.Span(0, 2*n.cfg.PullTTL), delivery{kind: kindFetch, a: uint64(i), b: wantedLater, c: uint64(from)})
		return
	}
	d := draw.Hash(w.seed, draw.Engine, uint64(name), 13)
	abandons, abandoned := w.strikes(plan.FaultAbandon, name, 0)
	before := abandons.Permille(600)
	if abandoned && before {
		w.abandon(n, i)
		if abandons.Again().Permille(500) {
			return
		}
	}
	if !j.probe && d.Permille(300) {
		w.give(n, command{want: plan.WantContains, job: i, body: w.stock.contains.one(receiver.Contains{Keys: j.keys})}, 0)
	}
	count := len(j.keys) - from
	if from == 0 && j.prefix > 0 {
		count = min(count, j.prefix)
	}
	body := receiver.Fetch{Request: j.name, Keys: j.keys[from : from+count], Patience: n.cfg.FetchTimeout}
	if j.gather && d.Again().Permille(200) {
		body.Request = nil // Then it takes nothing from anybody.
	}
	patience := n.cfg.FetchTimeout
	if d = d.Again().Again(); !j.probe && d.Permille(400) {
		body.Patience = 0
	} else if !j.probe {
		patience = d.Again().Span(1, patience)
		body.Patience = patience
	}
	t := w.give(n, command{want: plan.WantFetch, job: i, from: from, count: uint32(count),
		body: w.stock.fetches.one(body)}, patience)
	w.maybeAbort(n, t)
	if abandoned && !before {
		w.abandon(n, i)
	}
}

func (w *world) abandon(n *node, i int) {
	w.give(n, command{want: plan.WantAbandon, job: i, body: &receiver.Abandon{Request: w.jobs[i].name}}, 0)
}

// fetched is the outcome of a fetch: all of its chunks, or none that counts.
func (w *world) fetched(n *node, e *effects.Deliver, c *command) {
	j := &w.jobs[c.job]
	if w.oracles.onFetched(n, e, c); w.failure != nil {
		return
	}
	next := c.from
	switch {
	case e.Code == effects.OK:
		w.result.Chunks += uint64(c.count)
		if next += int(c.count); next == len(j.keys) {
			j.served = true
			return
		}
	case j.probe || j.given[plan.WantFetch] >= 3:
		return
	}
	if d := draw.Hash(w.seed, draw.Engine, uint64(c.name), 14); !d.Permille(600) { // The rest, or once more.
		w.forNode(n, d.Again().Heavy(20*effects.Millisecond),
			delivery{kind: kindFetch, a: uint64(c.job), b: wantedLater, c: uint64(next)})
	}
}
