package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// FetchChunks makes an engine fetch a request's chunks from index from on, at a node that keeps offers. A fault may
// make the engine postpone the fetch, or abandon the request. If immediately is set, the fetch was postponed before and
// is not postponed again.
func (j *Job) FetchChunks(w *Cluster, from int, immediately bool) {
	n := w.Nodes[j.Receiver]
	name := plan.AboutCommand(j.requestNumber, plan.CommandFetch, j.CommandCounts[plan.CommandFetch]+1)
	if late, ok := w.DrawStrike(plan.FaultFetchDelayed, name, 0); ok && !immediately {
		w.QueueForNode(n, late.Duration(0, 2*InfoOf(n).Cfg.PullTTL),
			world.Delivery{Kind: world.KindFetchJob, A: uint64(j.Index), B: fetchPostponed,
				C: uint64(from)})
		return
	}
	d := draw.Hash(w.Seed, draw.Engine, uint64(name), 13)
	abandons, abandoned := w.DrawStrike(plan.FaultRequestAbandoned, name, 0)
	abandonsFirst := abandons.ChancePermille(600)
	if abandoned && abandonsFirst {
		j.abandonRequest(w, n)
		if abandons.Rehash().ChancePermille(500) {
			return
		}
	}
	if !j.probe && d.ChancePermille(300) {
		w.GiveCommand(n, Command{Kind: plan.CommandContains, Job: j.Index, Body: w.bodies.contains.AllocCopy(engine.Contains{Keys: j.Keys})},
			0)
	}
	count := len(j.Keys) - from
	if from == 0 && j.prefix > 0 {
		count = min(count, j.prefix)
	}
	body := engine.Fetch{Request: j.Name, Keys: j.Keys[from : from+count], Timeout: InfoOf(n).Cfg.FetchTimeout}
	if j.gather && d.Rehash().ChancePermille(200) {
		body.Request = nil // Without a request, the fetch consumes no claim of any request.
	}
	timeout := InfoOf(n).Cfg.FetchTimeout
	switch d = d.Rehash().Rehash(); {
	case j.probe:
	case d.ChancePermille(200):
		body.Timeout = 0
	case d.ChancePermille(400): // More than the node's own limit: the node applies its limit.
		body.Timeout = 5 * timeout
	default:
		timeout = d.Rehash().Duration(1, timeout)
		body.Timeout = timeout
	}
	t := w.GiveCommand(n, Command{Kind: plan.CommandFetch, Job: j.Index, From: from, Count: uint32(count),
		Body: w.bodies.fetches.AllocCopy(body)}, timeout)
	w.MaybeAbort(n, t)
	if abandoned && !abandonsFirst {
		j.abandonRequest(w, n)
	}
}

// FetchPrefix makes an engine fetch the first count chunks of a request. The node keeps offers of these chunks or
// already has them.
func (j *Job) FetchPrefix(w *Cluster, count int) {
	j.prefix = count
	j.FetchChunks(w, 0, false)
}

// WantGiveUp is the kind of command by which an engine gives up the rest of a failed fetch.
var WantGiveUp = plan.NewCommandKind(19, "giveup", false)

// maybeGiveUp draws whether an engine gives up all chunks that a failed fetch had still to read. The result is true if
// the engine does not want these chunks any more. If the result is false after a give-up, the engine may fetch the
// chunks later, and chunks that arrive until then are kept for the engine.
func (j *Job) maybeGiveUp(w *Cluster, n *world.Node, c *Command) bool {
	d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 19)
	if j.probe || len(j.Name) == 0 || draw.IsFixed(w.Seed) || !d.ChancePermille(600) {
		return false
	}
	w.GiveCommand(n, Command{Kind: WantGiveUp, Job: j.Index, From: c.From, Count: uint32(len(j.Keys) - c.From),
		Body: &engine.GiveUp{Request: j.Name, Keys: j.Keys[c.From:]}}, 0)
	return d.Rehash().ChancePermille(700)
}

// abandonRequest makes the engine of n abandon the job's request.
func (j *Job) abandonRequest(w *Cluster, n *world.Node) {
	w.GiveCommand(n, Command{Kind: plan.CommandAbandon, Job: j.Index, Body: &engine.Abandon{Request: j.Name}}, 0)
	j.abandonOtherRequests(w, n)
}

// handleFetchOutcome handles the outcome of a fetch. A fetch either delivers all chunks, or no chunk counts.
func (c *Command) handleFetchOutcome(w *Cluster, n *world.Node, e *effects.Deliver) {
	j := &w.Jobs[c.Job]
	if OnFetchOutcome.Report(&w.Panel, n.ID, FetchOutcome{n, e, c}); w.Failure != nil {
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
	case (e.Begun || c.From > 0) && j.maybeGiveUp(w, n, c):
		return
	case j.probe || j.CommandCounts[plan.CommandFetch] >= 3:
		return
	}
	// fetch the rest, or try once more
	if d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 14); !d.ChancePermille(600) {
		w.QueueForNode(n, d.Rehash().HeavyTail(20*effects.Millisecond),
			world.Delivery{Kind: world.KindFetchJob, A: uint64(c.Job), B: fetchPostponed, C: uint64(next)})
	}
}

// ScatterChunks passes a Scatter effect to the flow for engines in processes of their own; the flow hands over the
// chunks of the fetch. The result is false if the fetch is from an engine inside the node.
func (w *Cluster) ScatterChunks(n *world.Node, e *effects.Scatter) bool {
	c := w.CommandOf(n, e.Ticket)
	if !c.Attached {
		return false
	}
	w.Flows.processFlowOf(&w.Jobs[c.Job]).Processes.ScatterChunks(w, n, e)
	return true
}
