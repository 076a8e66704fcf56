package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/receiver"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
)

// posted is a notification at the proxy, which sends the request on to its decode.
func (w *world) posted(d delivery) {
	w.journal.note(w.now, kindPosted, plan.Nobody, d.a, d.b, d.c)
	if d.b >= uint64(len(w.jobs)) {
		w.fail("S9", "the proxy is told of request %d, which never was", oracle.Message(d.b))
		return
	}
	r := w.nodes[w.jobs[d.b].receiver]
	if r.up && !w.jobs[d.b].plainTo {
		w.forNode(r, draw.Hash(w.seed, draw.Post, uint64(w.jobs[d.b].request), 1).Heavy(w.plan.Net),
			delivery{kind: kindFetch, a: d.b})
	}
}

// What a decode engine's turn to want chunks is about.
const (
	wanted      = iota // the proxy sent the request on
	wantedLater        // a fetch that was put off, or the rest of one
	takenLater         // a Get that waited in the decode engine's queue
)

// fetch is the decode engine wanting a request's chunks.
func (w *world) fetch(i int) {
	j := &w.jobs[i]
	n := w.nodes[j.receiver]
	if n.delays && !j.take {
		w.fetchChunks(i, 0, false)
		return
	}
	if late := draw.Hash(w.seed, draw.Engine, uint64(j.request), 16); !j.probe && j.given[plan.WantGet] == 0 &&
		late.Permille(80) {
		// It has a queue, which may be longer than what came is kept.
		w.forNode(n, late.Again().Span(0, 2*n.cfg.ClaimTTL), delivery{kind: kindFetch, a: uint64(i), b: takenLater})
		return
	}
	w.take(i)
}

// take is the decode engine getting a request's chunks.
func (w *world) take(i int) {
	j := &w.jobs[i]
	n := w.nodes[j.receiver]
	d := draw.Hash(w.seed, draw.Engine, uint64(j.request), uint64(j.given[plan.WantGet])<<8|10)
	if !j.probe && d.Permille(300) {
		w.give(n, command{want: plan.WantContains, job: i, body: w.stock.contains.one(receiver.Contains{Keys: j.keys})}, 0)
	}
	if look := draw.Hash(w.seed, draw.Engine, uint64(j.request), 15); !j.probe && look.Permille(150) {
		// Somebody who names no request reads too, and takes nothing from this one.
		wait := look.Again().Span(0, n.cfg.GetWaitMax/4)
		w.give(n, command{want: plan.WantLook, job: i, body: w.stock.gets.one(receiver.Get{Keys: j.keys, Wait: wait})}, wait)
	}
	wait := d.Again().Span(0, n.cfg.GetWaitMax)
	t := w.give(n, command{want: plan.WantGet, job: i, body: w.stock.gets.one(receiver.Get{Request: j.name, Keys: j.keys,
		Wait: wait})}, wait)
	w.maybeAbort(n, t)
	if w.struck(plan.FaultAbandon, w.commands[t-1].name, 0) {
		w.give(n, command{want: plan.WantAbandon, job: i, body: &receiver.Abandon{Request: j.name}}, 0)
	}
}

// got is what a Get found. The engine reads it at once, and again before it lets go:
// nothing may change while it is pinned.
func (w *world) got(n *node, e *effects.Deliver, c *command) {
	j := &w.jobs[c.job]
	if int(e.Hits) != len(e.Pages) || len(e.Pages) > len(j.keys) {
		w.fail("S1", "node %d gets %d pages and %d hits for %d keys", n.it(), len(e.Pages), e.Hits, len(j.keys))
		return
	}
	if (e.Code == effects.OK) != (len(e.Pages) == len(j.keys)) {
		w.fail("S1", "node %d gets %d of %d chunks with code %s", n.it(), len(e.Pages), len(j.keys), e.Code)
		return
	}
	w.oracles.onGot(n, e, c)
	c.pages = w.stock.spans.keep(e.Pages)
	w.oracles.onRead(n, j, c.pages)
	if w.failure != nil {
		return
	}
	w.result.Chunks += uint64(len(e.Pages))
	if e.Code == effects.OK && c.want == plan.WantGet {
		j.served = true
	}
	if len(e.Pages) > 0 {
		d := draw.Hash(w.seed, draw.Engine, uint64(c.name), 11)
		w.forNode(n, d.Heavy(30*effects.Millisecond)+w.hoarded(c), delivery{kind: kindLetGo, a: uint64(e.Ticket)})
	}
}

// letGo reads once more and releases.
func (w *world) letGo(ticket uint64) {
	c := &w.commands[ticket-1]
	n := w.nodes[c.node]
	w.oracles.onRead(n, &w.jobs[c.job], c.pages)
	if w.failure != nil {
		return
	}
	w.giveRelease(n, effects.Ticket(ticket), w.stock.unpins.one(receiver.Release{Got: effects.Ticket(ticket)}))
}

// hoarded is how much longer than others an engine keeps the pages of a command.
func (w *world) hoarded(c *command) effects.Duration {
	d, _ := w.strikes(plan.FaultHoard, c.name, 0)
	if d == 0 {
		return 0
	}
	return d.Span(effects.Second/4, 3*effects.Second)
}
