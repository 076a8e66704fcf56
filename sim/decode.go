package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/engine"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// posted is a notification at the proxy, which sends the request on to its decode.
func (w *cluster) posted(d world.Delivery) {
	w.Journal.Note(w.Now, world.KindPosted, plan.Nobody, d.A, d.B, d.C)
	if d.B >= uint64(len(w.jobs)) {
		w.Fail("S9", "the proxy is told of request %d, which never was", oracle.Message(d.B))
		return
	}
	r := w.Nodes[w.jobs[d.B].receiver]
	if r.Up && !w.jobs[d.B].plainTo {
		w.ForNode(r, draw.Hash(w.Seed, draw.Post, uint64(w.jobs[d.B].request), 1).Heavy(w.Setting.Net),
			world.Delivery{Kind: world.KindFetch, A: d.B})
	}
}

// What a decode engine's turn to want chunks is about.
const (
	wanted      = iota // the proxy sent the request on
	wantedLater        // a fetch that was put off, or the rest of one
	takenLater         // a Get that waited in the decode engine's queue
)

// fetch is the decode engine wanting a request's chunks.
func (w *cluster) fetch(i int) {
	j := &w.jobs[i]
	n := w.Nodes[j.receiver]
	if n.Delays && !j.take {
		w.fetchChunks(i, 0, false)
		return
	}
	if late := draw.Hash(w.Seed, draw.Engine, uint64(j.request), 16); !j.probe && j.given[plan.WantGet] == 0 &&
		late.Permille(80) {
		// It has a queue, which may be longer than what came is kept.
		w.ForNode(n, late.Again().Span(0, 2*its(n).cfg.ClaimTTL),
			world.Delivery{Kind: world.KindFetch, A: uint64(i), B: takenLater})
		return
	}
	w.take(i)
}

// take is the decode engine getting a request's chunks.
func (w *cluster) take(i int) {
	j := &w.jobs[i]
	n := w.Nodes[j.receiver]
	d := draw.Hash(w.Seed, draw.Engine, uint64(j.request), uint64(j.given[plan.WantGet])<<8|10)
	if !j.probe && d.Permille(300) {
		w.give(n, command{want: plan.WantContains, job: i, body: w.bodies.contains.One(engine.Contains{Keys: j.keys})}, 0)
	}
	if look := draw.Hash(w.Seed, draw.Engine, uint64(j.request), 15); !j.probe && look.Permille(150) {
		// Somebody who names no request reads too, and takes nothing from this one.
		wait := look.Again().Span(0, its(n).cfg.GetWaitMax/4)
		w.give(n, command{want: plan.WantLook, job: i, body: w.bodies.gets.One(engine.Get{Keys: j.keys, Wait: wait})}, wait)
	}
	wait := d.Again().Span(0, its(n).cfg.GetWaitMax)
	t := w.give(n, command{want: plan.WantGet, job: i, body: w.bodies.gets.One(engine.Get{Request: j.name, Keys: j.keys,
		Wait: wait})}, wait)
	w.maybeAbort(n, t)
	if w.Struck(plan.FaultAbandon, w.commands[t-1].name, 0) {
		w.give(n, command{want: plan.WantAbandon, job: i, body: &engine.Abandon{Request: j.name}}, 0)
	}
}

// got is what a Get found. The engine reads it at once, and again before it lets go:
// nothing may change while it is pinned.
func (w *cluster) got(n *world.Node, e *effects.Deliver, c *command) {
	j := &w.jobs[c.job]
	if int(e.Hits) != len(e.Pages) || len(e.Pages) > len(j.keys) {
		w.Fail("S1", "node %d gets %d pages and %d hits for %d keys", n.It(), len(e.Pages), e.Hits, len(j.keys))
		return
	}
	if (e.Code == effects.OK) != (len(e.Pages) == len(j.keys)) {
		w.Fail("S1", "node %d gets %d of %d chunks with code %s", n.It(), len(e.Pages), len(j.keys), e.Code)
		return
	}
	w.oracles.onGot(n, e, c)
	c.pages = w.Stock.Spans.Keep(e.Pages)
	w.oracles.onRead(n, j, c.pages)
	if w.Failure != nil {
		return
	}
	w.Result.Chunks += uint64(len(e.Pages))
	if e.Code == effects.OK && c.want == plan.WantGet {
		j.served = true
	}
	if len(e.Pages) > 0 {
		d := draw.Hash(w.Seed, draw.Engine, uint64(c.name), 11)
		w.ForNode(n, d.Heavy(30*effects.Millisecond)+w.hoarded(c), world.Delivery{Kind: world.KindLetGo, A: uint64(e.Ticket)})
	}
}

// letGo reads once more and releases.
func (w *cluster) letGo(ticket uint64) {
	c := &w.commands[ticket-1]
	n := w.Nodes[c.node]
	w.oracles.onRead(n, &w.jobs[c.job], c.pages)
	if w.Failure != nil {
		return
	}
	w.giveRelease(n, effects.Ticket(ticket), w.bodies.unpins.One(engine.Unpin{Got: effects.Ticket(ticket)}))
}

// hoarded is how much longer than others an engine keeps the pages of a command.
func (w *cluster) hoarded(c *command) effects.Duration {
	d, _ := w.Strikes(plan.FaultHoard, c.name, 0)
	if d == 0 {
		return 0
	}
	return d.Span(effects.Second/4, 3*effects.Second)
}
