package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// FetchChunks is an engine wanting a request's chunks from one on, where its node keeps offers. It may find that
// it wants them only later, or not at all; now says that later has come.
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
		body.Request = nil // Then it takes nothing from anybody.
	}
	patience := Its(n).Cfg.FetchTimeout
	switch d = d.Again().Again(); {
	case j.probe:
	case d.Permille(200):
		body.Patience = 0
	case d.Permille(400): // What is beyond the node's own is not had.
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

// FetchFirst is an engine wanting the first chunks of a request, which its node keeps or has.
func (j *Job) FetchFirst(w *Cluster, count int) {
	j.prefix = count
	j.FetchChunks(w, 0, false)
}

// WantGiveUp are commands by which an engine lets go of the rest of a fetch that has failed.
var WantGiveUp = plan.NewWant(19, "giveup", false)

// givesUp draws whether an engine lets go of all that its failed fetch was still to bring, and says whether it wants
// nothing of that any more. It may want it later: what comes until then is kept for it.
func (j *Job) givesUp(w *Cluster, n *world.Node, c *Command) bool {
	d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 19)
	if j.probe || len(j.Name) == 0 || w.Seed >= draw.RestlessSeed || !d.Permille(600) {
		return false
	}
	w.Give(n, Command{Want: WantGiveUp, Job: j.Place, From: c.From, Count: uint32(len(j.Keys) - c.From),
		Body: &engine.GiveUp{Request: j.Name, Keys: j.Keys[c.From:]}}, 0)
	return d.Again().Permille(700)
}

func (j *Job) abandon(w *Cluster, n *world.Node) {
	w.Give(n, Command{Want: plan.WantAbandon, Job: j.Place, Body: &engine.Abandon{Request: j.Name}}, 0)
	j.abandonOthers(w, n)
}

// fetched is the outcome of a fetch: all of its chunks, or none that counts.
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
	if d := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 14); !d.Permille(600) { // The rest, or once more.
		w.ForNode(n, d.Again().Heavy(20*effects.Millisecond),
			world.Delivery{Kind: world.KindFetch, A: uint64(c.Job), B: wantedLater, C: uint64(next)})
	}
}

// scatters has chunks of a fetch handed over by whoever sees to engines in processes of their own, if it is one's.
func scatters(w *Cluster, n *world.Node, e *effects.Scatter) bool {
	c := w.CommandOf(n, e.Ticket)
	if !c.Attached {
		return false
	}
	w.Flows.attaching(&w.Jobs[c.Job]).Scatter(w, n, e)
	return true
}
