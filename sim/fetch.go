package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// fetchChunks is an engine wanting a request's chunks from one on, where its node keeps offers. It may find that
// it wants them only later, or not at all; now says that later has come.
func (w *cluster) fetchChunks(i, from int, now bool) {
	j := &w.jobs[i]
	n := w.Nodes[j.receiver]
	name := plan.AboutCommand(j.request, plan.WantFetch, j.given[plan.WantFetch]+1)
	if late, yes := w.Strikes(plan.FaultPutOff, name, 0); yes && !now {
		w.ForNode(n, late.Span(0, 2*its(n).cfg.PullTTL), world.Delivery{Kind: world.KindFetch, A: uint64(i), B: wantedLater,
			C: uint64(from)})
		return
	}
	d := draw.Hash(w.Seed, draw.Engine, uint64(name), 13)
	abandons, abandoned := w.Strikes(plan.FaultAbandon, name, 0)
	before := abandons.Permille(600)
	if abandoned && before {
		w.abandon(n, i)
		if abandons.Again().Permille(500) {
			return
		}
	}
	if !j.probe && d.Permille(300) {
		w.give(n, command{want: plan.WantContains, job: i, body: w.bodies.contains.One(engine.Contains{Keys: j.keys})}, 0)
	}
	count := len(j.keys) - from
	if from == 0 && j.prefix > 0 {
		count = min(count, j.prefix)
	}
	body := engine.Fetch{Request: j.name, Keys: j.keys[from : from+count], Patience: its(n).cfg.FetchTimeout}
	if j.gather && d.Again().Permille(200) {
		body.Request = nil // Then it takes nothing from anybody.
	}
	patience := its(n).cfg.FetchTimeout
	if d = d.Again().Again(); !j.probe && d.Permille(400) {
		body.Patience = 0
	} else if !j.probe {
		patience = d.Again().Span(1, patience)
		body.Patience = patience
	}
	t := w.give(n, command{want: plan.WantFetch, job: i, from: from, count: uint32(count),
		body: w.bodies.fetches.One(body)}, patience)
	w.maybeAbort(n, t)
	if abandoned && !before {
		w.abandon(n, i)
	}
}

func (w *cluster) abandon(n *world.Node, i int) {
	w.give(n, command{want: plan.WantAbandon, job: i, body: &engine.Abandon{Request: w.jobs[i].name}}, 0)
}

// fetched is the outcome of a fetch: all of its chunks, or none that counts.
func (w *cluster) fetched(n *world.Node, e *effects.Deliver, c *command) {
	j := &w.jobs[c.job]
	if w.oracles.onFetched(n, e, c); w.Failure != nil {
		return
	}
	next := c.from
	switch {
	case e.Code == effects.OK:
		w.Result.Chunks += uint64(c.count)
		if next += int(c.count); next == len(j.keys) {
			j.served = true
			return
		}
	case j.probe || j.given[plan.WantFetch] >= 3:
		return
	}
	if d := draw.Hash(w.Seed, draw.Engine, uint64(c.name), 14); !d.Permille(600) { // The rest, or once more.
		w.ForNode(n, d.Again().Heavy(20*effects.Millisecond),
			world.Delivery{Kind: world.KindFetch, A: uint64(c.job), B: wantedLater, C: uint64(next)})
	}
}
