package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// forwardRequest handles a notification at the proxy, which forwards the request to its decode engine.
func (w *Cluster) forwardRequest(d world.Delivery) {
	w.Journal.AddLine(w.Now, world.KindProxyPost, plan.NoNode, d.A, d.B, d.C)
	if d.B >= uint64(len(w.Jobs)) {
		w.Fail("S9", "the proxy is notified of request %d, which does not exist", oracle.Message(d.B))
		return
	}
	r := w.Nodes[w.Jobs[d.B].Receiver]
	if r.Up && !w.Jobs[d.B].PlainTo {
		w.QueueForNode(r, draw.Hash(w.Seed, draw.Post, uint64(w.Jobs[d.B].requestNumber), 1).HeavyTail(w.Conditions.MessageTime),
			world.Delivery{Kind: world.KindFetchJob, A: d.B})
	}
}

// The reasons of a delivery of kind KindFetchJob, by which a decode engine begins to read chunks.
const (
	fetchForwarded = iota // the proxy forwarded the request
	fetchPostponed        // a postponed fetch, or the rest of a fetch
	getPostponed          // a Get that waited in the decode engine's queue
)

// readChunks makes the decode engine read a request's chunks: in a process of its own, with a Fetch, or with a Get.
func (j *Job) readChunks(w *Cluster) {
	n := w.Nodes[j.Receiver]
	if flow := w.Flows.processFlowOf(j); flow != nil {
		flow.Processes.FetchJob(w, n, j)
		return
	}
	if n.KeepsOffers && !j.Take {
		j.FetchChunks(w, 0, false)
		return
	}
	if late := draw.Hash(w.Seed, draw.Engine, uint64(j.requestNumber), 16); !j.probe && j.CommandCounts[plan.CommandGet] == 0 &&
		late.ChancePermille(80) {
		// The engine has a separate queue. The wait in the queue may be longer than received chunks are kept
		// (ClaimTTL).
		w.QueueForNode(n, late.Rehash().Duration(0, 2*InfoOf(n).Cfg.ClaimTTL),
			world.Delivery{Kind: world.KindFetchJob, A: uint64(j.Index), B: getPostponed})
		return
	}
	j.GetChunks(w)
}

// GetChunks makes the decode engine get a request's chunks.
func (j *Job) GetChunks(w *Cluster) {
	n := w.Nodes[j.Receiver]
	d := draw.Hash(w.Seed, draw.Engine, uint64(j.requestNumber), uint64(j.CommandCounts[plan.CommandGet])<<8|10)
	if !j.probe && j.Layers == 0 && d.ChancePermille(300) {
		w.GiveCommand(n, Command{Kind: plan.CommandContains, Job: j.Index, Body: w.bodies.contains.AllocCopy(engine.Contains{Keys: j.Keys})},
			0)
	}
	if lookDraw := draw.Hash(w.Seed, draw.Engine, uint64(j.requestNumber), 15); !j.probe && lookDraw.ChancePermille(150) {
		// Another reader, which names no request, reads the same chunks. That read consumes no claim of this request.
		wait := lookDraw.Rehash().Duration(0, InfoOf(n).Cfg.GetWaitMax/4)
		w.GiveCommand(n, Command{Kind: plan.CommandLookup, Job: j.Index, Body: w.bodies.gets.AllocCopy(engine.Get{
			Keys: j.requestedKeys(), Wait: wait, Layered: j.Layers > 0,
		})},
			wait)
	}
	wait := d.Rehash().Duration(0, InfoOf(n).Cfg.GetWaitMax)
	requestedWait := wait
	// longer than the limit for any wait
	if longerDraw := draw.Hash(w.Seed, draw.Engine, uint64(j.requestNumber), 18); longerDraw.ChancePermille(100) {
		wait = InfoOf(n).Cfg.GetWaitMax
		requestedWait = wait + longerDraw.Rehash().Duration(0, 4*wait)
	}
	t := w.GiveCommand(n, Command{Kind: plan.CommandGet, Job: j.Index, Body: w.bodies.gets.AllocCopy(engine.Get{Request: j.Name,
		Keys: j.requestedKeys(), Wait: requestedWait, Layered: j.Layers > 0})}, wait)
	w.MaybeAbort(n, t)
	w.Commands[t-1].maybeReleaseEarly(w, n, t)
	if w.IsStruck(plan.FaultRequestAbandoned, w.Commands[t-1].Name, 0) {
		j.abandonRequest(w, n)
	}
}

// abandonOtherRequests sometimes makes an engine abandon up to two further requests in the same instant, if the machine
// ends only a few rows in each step. The first abandonment is then still in progress when the next arrives. The limit
// is two, because a machine might refuse more abandonments as too many.
func (j *Job) abandonOtherRequests(w *Cluster, n *world.Node) {
	if w.SourcePlan.Bounds.Rows == 0 || !draw.Hash(w.Seed, draw.Engine, uint64(j.requestNumber), 18).ChancePermille(500) {
		return
	}
	abandoned := 0
	for i := range w.Jobs {
		if x := &w.Jobs[i]; abandoned < 2 && x != j && x.Receiver == n.ID && !x.PlainTo && x.CommandCounts[plan.CommandAbandon] == 0 {
			w.GiveCommand(n, Command{Kind: plan.CommandAbandon, Job: i, Body: &engine.Abandon{Request: x.Name}}, 0)
			abandoned++
		}
	}
}

var checkGetHits = oracle.NewCheck("S1", "contents of gets")

// handleGetOutcome handles the outcome of a Get. The engine reads the pages at once, and again before the release: the
// content of pinned pages must not change.
func (c *Command) handleGetOutcome(w *Cluster, n *world.Node, e *effects.Deliver) {
	j := &w.Jobs[c.Job]
	w.CountJudged(checkGetHits)
	if j.KeysIn(e.Hits) != len(e.Pages) || len(e.Pages) > len(j.Keys) {
		w.FailCheck(checkGetHits, "node %d gets %d pages and %d hits for %d keys", n.AsSubject(), len(e.Pages), e.Hits, len(j.Keys))
		return
	}
	if (e.Code == effects.OK) != (len(e.Pages) == len(j.Keys)) {
		w.FailCheck(checkGetHits, "node %d gets %d of %d chunks with code %s", n.AsSubject(), len(e.Pages), len(j.Keys), e.Code)
		return
	}
	OnGetOutcome.Report(&w.Panel, n.ID, GetOutcome{n, e, c})
	c.Pages = w.Arenas.EffectPages.CopySlice(e.Pages)
	OnPagesRead.Report(&w.Panel, n.ID, PagesRead{n, j, c.Pages})
	if w.Failure != nil {
		return
	}
	w.Result.Chunks += uint64(len(e.Pages))
	if e.Code == effects.OK && c.Kind == plan.CommandGet {
		j.served = true
	}
	if len(e.Pages) > 0 && !c.Attached {
		d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 11)
		w.QueueForNode(n, d.HeavyTail(30*effects.Millisecond)+c.hoardTime(w), world.Delivery{Kind: world.KindReleasePages, A: uint64(e.Ticket)})
	}
}

// rereadAndRelease reads the pages again and releases the pages.
func (c *Command) rereadAndRelease(w *Cluster, t effects.Ticket) {
	n := w.Nodes[c.Node]
	if c.Released {
		return // The engine released the pages by mistake, before the outcome arrived.
	}
	if c.Kind == WantOfDomain {
		OnGetOfDomain.Report(&w.Panel, n.ID, GetOfDomain{Node: n, Command: c})
	} else {
		OnPagesRead.Report(&w.Panel, n.ID, PagesRead{n, &w.Jobs[c.Job], c.Pages})
	}
	if w.Failure != nil {
		return
	}
	c.giveRelease(w, n, t, w.bodies.unpins.AllocCopy(engine.Unpin{Got: t}))
}

// hoardTime returns the additional time for which an engine keeps the pages of a command. The result is 0 unless
// FaultPagesKeptLong strikes.
func (c *Command) hoardTime(w *Cluster) effects.Duration {
	d, _ := w.DrawStrike(plan.FaultPagesKeptLong, c.Name, 0)
	if d == 0 {
		return 0
	}
	return d.Duration(effects.Second/4, HoardTimeMax)
}

// HoardTimeMax is the upper bound of the time that hoardTime returns.
const HoardTimeMax = 3 * effects.Second
