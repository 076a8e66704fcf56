package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// posted handles a notification at the proxy, which forwards the request to its decode engine.
func (w *Cluster) posted(d world.Delivery) {
	w.Journal.Note(w.Now, world.KindPosted, plan.Nobody, d.A, d.B, d.C)
	if d.B >= uint64(len(w.Jobs)) {
		w.Fail("S9", "the proxy is told of request %d, which never was", oracle.Message(d.B))
		return
	}
	r := w.Nodes[w.Jobs[d.B].Receiver]
	if r.Up && !w.Jobs[d.B].PlainTo {
		w.ForNode(r, draw.Hash(w.Seed, draw.Post, uint64(w.Jobs[d.B].request), 1).Heavy(w.Setting.Net),
			world.Delivery{Kind: world.KindFetch, A: d.B})
	}
}

// The reasons of a KindFetch delivery, by which a decode engine begins to read chunks.
const (
	wanted      = iota // the proxy forwarded the request
	wantedLater        // a postponed fetch, or the rest of a fetch
	takenLater         // a Get that waited in the decode engine's queue
)

// fetch makes the decode engine read a request's chunks: in a process of its own, with a Fetch, or with a Get.
func (j *Job) fetch(w *Cluster) {
	n := w.Nodes[j.Receiver]
	if flow := w.Flows.attaching(j); flow != nil {
		flow.Processes.Fetch(w, n, j)
		return
	}
	if n.Delays && !j.Take {
		j.FetchChunks(w, 0, false)
		return
	}
	if late := draw.Hash(w.Seed, draw.Engine, uint64(j.request), 16); !j.probe && j.Given[plan.WantGet] == 0 &&
		late.Permille(80) {
		// The engine has a separate queue. The wait in the queue may be longer than received chunks are kept
		// (ClaimTTL).
		w.ForNode(n, late.Again().Span(0, 2*Its(n).Cfg.ClaimTTL),
			world.Delivery{Kind: world.KindFetch, A: uint64(j.Place), B: takenLater})
		return
	}
	j.Get(w)
}

// Get makes the decode engine get a request's chunks.
func (j *Job) Get(w *Cluster) {
	n := w.Nodes[j.Receiver]
	d := draw.Hash(w.Seed, draw.Engine, uint64(j.request), uint64(j.Given[plan.WantGet])<<8|10)
	if !j.probe && j.Layers == 0 && d.Permille(300) {
		w.Give(n, Command{Want: plan.WantContains, Job: j.Place, Body: w.bodies.contains.One(engine.Contains{Keys: j.Keys})},
			0)
	}
	if look := draw.Hash(w.Seed, draw.Engine, uint64(j.request), 15); !j.probe && look.Permille(150) {
		// Another reader, which names no request, reads the same chunks. That read consumes no claim of this request.
		wait := look.Again().Span(0, Its(n).Cfg.GetWaitMax/4)
		w.Give(n, Command{Want: plan.WantLook, Job: j.Place, Body: w.bodies.gets.One(engine.Get{
			Keys: j.asked(), Wait: wait, Layered: j.Layers > 0,
		})},
			wait)
	}
	wait := d.Again().Span(0, Its(n).Cfg.GetWaitMax)
	asks := wait
	// longer than the limit for any wait
	if longer := draw.Hash(w.Seed, draw.Engine, uint64(j.request), 18); longer.Permille(100) {
		wait = Its(n).Cfg.GetWaitMax
		asks = wait + longer.Again().Span(0, 4*wait)
	}
	t := w.Give(n, Command{Want: plan.WantGet, Job: j.Place, Body: w.bodies.gets.One(engine.Get{Request: j.Name,
		Keys: j.asked(), Wait: asks, Layered: j.Layers > 0})}, wait)
	w.MaybeAbort(n, t)
	w.Commands[t-1].maybeWaiting(w, n, t)
	if w.Struck(plan.FaultAbandon, w.Commands[t-1].Name, 0) {
		j.abandon(w, n)
	}
}

// abandonOthers sometimes makes an engine abandon up to two further requests in the same instant, if the machine ends
// only a few rows in each step. The first abandonment is then still in progress when the next arrives. The limit is
// two, because a machine might refuse more abandonments as too many.
func (j *Job) abandonOthers(w *Cluster, n *world.Node) {
	if w.Source.Bounds.Rows == 0 || !draw.Hash(w.Seed, draw.Engine, uint64(j.request), 18).Permille(500) {
		return
	}
	others := 0
	for i := range w.Jobs {
		if x := &w.Jobs[i]; others < 2 && x != j && x.Receiver == n.ID && !x.PlainTo && x.Given[plan.WantAbandon] == 0 {
			w.Give(n, Command{Want: plan.WantAbandon, Job: i, Body: &engine.Abandon{Request: x.Name}}, 0)
			others++
		}
	}
}

// got handles the outcome of a Get. The engine reads the pages at once, and again before the release: the content of
// pinned pages must not change.
func (c *Command) got(w *Cluster, n *world.Node, e *effects.Deliver) {
	j := &w.Jobs[c.Job]
	if j.After(e.Hits) != len(e.Pages) || len(e.Pages) > len(j.Keys) {
		w.Fail("S1", "node %d gets %d pages and %d hits for %d keys", n.It(), len(e.Pages), e.Hits, len(j.Keys))
		return
	}
	if (e.Code == effects.OK) != (len(e.Pages) == len(j.Keys)) {
		w.Fail("S1", "node %d gets %d of %d chunks with code %s", n.It(), len(e.Pages), len(j.Keys), e.Code)
		return
	}
	OnGot.Report(&w.Panel, n.ID, Got{n, e, c})
	c.Pages = w.Stock.Spans.Keep(e.Pages)
	OnRead.Report(&w.Panel, n.ID, Read{n, j, c.Pages})
	if w.Failure != nil {
		return
	}
	w.Result.Chunks += uint64(len(e.Pages))
	if e.Code == effects.OK && c.Want == plan.WantGet {
		j.served = true
	}
	if len(e.Pages) > 0 && !c.Attached {
		d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 11)
		w.ForNode(n, d.Heavy(30*effects.Millisecond)+c.hoarded(w), world.Delivery{Kind: world.KindLetGo, A: uint64(e.Ticket)})
	}
}

// letGo reads the pages again and releases the pages.
func (c *Command) letGo(w *Cluster, t effects.Ticket) {
	n := w.Nodes[c.Node]
	if c.Released {
		return // The engine released the pages by mistake, before the outcome arrived.
	}
	OnRead.Report(&w.Panel, n.ID, Read{n, &w.Jobs[c.Job], c.Pages})
	if w.Failure != nil {
		return
	}
	c.release(w, n, t, w.bodies.unpins.One(engine.Unpin{Got: t}))
}

// hoarded returns the additional time for which an engine keeps the pages of a command. The result is 0 unless
// FaultHoard strikes.
func (c *Command) hoarded(w *Cluster) effects.Duration {
	d, _ := w.Strikes(plan.FaultHoard, c.Name, 0)
	if d == 0 {
		return 0
	}
	return d.Span(effects.Second/4, HoardedMost)
}

// HoardedMost is the upper bound of the time that hoarded returns.
const HoardedMost = 3 * effects.Second
