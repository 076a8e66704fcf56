package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// FetchChunks makes an engine fetch a request's chunks from index from on, at a node that keeps offers. A fault may
// make the engine postpone the fetch, or abandon the request. If now is set, the fetch was postponed before and is
// not postponed again.
func (j *Job) FetchChunks(w *Cluster, from int, now bool) {
	n := w.Nodes[j.Receiver]
	name := plan.AboutCommand(j.request, plan.WantFetch, j.Given[plan.WantFetch]+1)
	if late, yes := w.Strikes(plan.FaultPutOff, name, 0); yes && !now {
		w.ForNode(n, late.Span(0, 2*Its(n).Cfg.PullTTL),
			world.Delivery{Kind: world.KindFetch, A: uint64(j.Place), B: wantedLater,
				C: uint64(from)})
		return
	}
	d := draw.Hash(w.Seed, draw.Engine, uint64(name), 13)
	abandons, abandoned := w.Strikes(plan.FaultAbandon, name, 0)
	before := abandons.Permille(600)
	if abandoned && before {
		j.abandon(w, n)
		if abandons.Again().Permille(500) {
			return
		}
	}
	if !j.probe && d.Permille(300) {
		w.Give(n, Command{Want: plan.WantContains, Job: j.Place, Body: w.bodies.contains.One(engine.Contains{Keys: j.Keys})},
			0)
	}
	count := len(j.Keys) - from
	if from == 0 && j.prefix > 0 {
		count = min(count, j.prefix)
	}
	body := engine.Fetch{Request: j.Name, Keys: j.Keys[from : from+count], Patience: Its(n).Cfg.FetchTimeout}
	if j.gather && d.Again().Permille(200) {
		body.Request = nil // Without a request, the fetch consumes no claim of any request.
	}
	patience := Its(n).Cfg.FetchTimeout
	switch d = d.Again().Again(); {
	case j.probe:
	case d.Permille(200):
		body.Patience = 0
	case d.Permille(400): // More than the node's own limit: the node applies its limit.
		body.Patience = 5 * patience
	default:
		patience = d.Again().Span(1, patience)
		body.Patience = patience
	}
	t := w.Give(n, Command{Want: plan.WantFetch, Job: j.Place, From: from, Count: uint32(count),
		Body: w.bodies.fetches.One(body)}, patience)
	w.MaybeAbort(n, t)
	if abandoned && !before {
		j.abandon(w, n)
	}
}

// FetchFirst makes an engine fetch the first count chunks of a request. The node keeps offers of these chunks or
// already has them.
func (j *Job) FetchFirst(w *Cluster, count int) {
	j.prefix = count
	j.FetchChunks(w, 0, false)
}

// WantGiveUp is the kind of command by which an engine gives up the rest of a failed fetch.
var WantGiveUp = plan.NewWant(19, "giveup", false)

// givesUp draws whether an engine gives up all chunks that a failed fetch had still to read. The result is true if the
// engine does not want these chunks any more. If the result is false after a give-up, the engine may fetch the chunks
// later, and chunks that arrive until then are kept for the engine.
func (j *Job) givesUp(w *Cluster, n *world.Node, c *Command) bool {
	d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 19)
	if j.probe || len(j.Name) == 0 || w.Seed >= draw.RestlessSeed || !d.Permille(600) {
		return false
	}
	w.Give(n, Command{Want: WantGiveUp, Job: j.Place, From: c.From, Count: uint32(len(j.Keys) - c.From),
		Body: &engine.GiveUp{Request: j.Name, Keys: j.Keys[c.From:]}}, 0)
	return d.Again().Permille(700)
}

// abandon makes the engine of n abandon the job's request.
func (j *Job) abandon(w *Cluster, n *world.Node) {
	w.Give(n, Command{Want: plan.WantAbandon, Job: j.Place, Body: &engine.Abandon{Request: j.Name}}, 0)
	j.abandonOthers(w, n)
}

// fetched handles the outcome of a fetch. A fetch either delivers all chunks, or no chunk counts.
func (c *Command) fetched(w *Cluster, n *world.Node, e *effects.Deliver) {
	j := &w.Jobs[c.Job]
	if OnFetched.Report(&w.Panel, n.ID, Fetched{n, e, c}); w.Failure != nil {
		return
	}
	next := c.From
	if e.Code == effects.OK {
		w.Result.Chunks += uint64(c.Count)
		if next += int(c.Count); next == len(j.Keys) {
			j.served = true
			return
		}
	}
	switch {
	case c.Attached:
		return
	case e.Code == effects.OK:
	case (e.Begun || c.From > 0) && j.givesUp(w, n, c):
		return
	case j.probe || j.Given[plan.WantFetch] >= 3:
		return
	}
	// fetch the rest, or try once more
	if d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 14); !d.Permille(600) {
		w.ForNode(n, d.Again().Heavy(20*effects.Millisecond),
			world.Delivery{Kind: world.KindFetch, A: uint64(c.Job), B: wantedLater, C: uint64(next)})
	}
}

// Scatter passes a Scatter effect to the flow for engines in processes of their own; the flow hands over the chunks
// of the fetch. The result is false if the fetch is from an engine inside the node.
func (w *Cluster) Scatter(n *world.Node, e *effects.Scatter) bool {
	c := w.CommandOf(n, e.Ticket)
	if !c.Attached {
		return false
	}
	w.Flows.attaching(&w.Jobs[c.Job]).Processes.Scatter(w, n, e)
	return true
}
