package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine that shares now and then lets peers read what it has put, in the pages in which that lies. After a while it
// takes them back, fills them with something else, and releases them. Now and then it shares them twice meanwhile,
// hands them over to its cache as if they were not shared, or takes them back twice.

// The commands by which it does. Of either the pages are those that are shared.
var (
	lets  = plan.NewWant(17, "share", true)
	backs = plan.NewWant(18, "withdraw", true)
)

// lends draws whether an engine shares what it has of a put whose memory is its own again, all of one reserve.
func lends(w *pd.Cluster, n *world.Node, c *pd.Command) pd.Use {
	j := &w.Jobs[c.Job]
	b := &j.Batches[c.Batch]
	if !n.Caches || n.Leaving || len(w.Commands[b.Reserve-1].Pages) > len(c.Pages) ||
		!draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 30).Permille(300) {
		return pd.Unused
	}
	body := engine.Share{Reserved: b.Reserve}
	for i, p := range c.Pages {
		if p.Length == n.Pool.PageBytes {
			body.Keys, body.Pages = append(body.Keys, j.Keys[b.From+i]), append(body.Pages, p)
		}
	}
	if len(body.Keys) == 0 {
		return pd.Unused
	}
	w.Give(n, pd.Command{Want: lets, Job: c.Job, Batch: c.Batch, Target: b.Reserve, Body: &body, Pages: body.Pages}, 0)
	return pd.Lent
}

// sharedMost is how long an engine shares at most: no longer than a run waits for engines once its faults have ended.
const sharedMost = 6 * effects.Second

// lent has an engine take back in a while what is shared now; what is not it releases.
func lent(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	switch c := *c; {
	case had(w, e.Ticket, readable) != 0: // It was shared before.
	case e.Code != effects.OK:
		w.Release(n, c.Target)
	default:
		pd.OnShared.Report(&w.Panel, n.ID, pd.Shared{Node: n, Command: &c})
		if d, yes := w.Strikes(plan.FaultConflict, c.Name, 0); yes {
			again := pd.Command{Want: c.Want, Job: c.Job, Batch: c.Batch, Target: c.Target, Body: c.Body, Pages: c.Pages}
			if d.Permille(500) {
				body := engine.Store(*c.Body.(*engine.Share))
				again.Want, again.Body = keep, &body
			}
			w.Give(n, again, 0)
		}
		late := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 31).Heavy(2 * effects.Second)
		takeBack(w, n, &c, e.Ticket, min(late, sharedMost))
	}
}

// takeBack withdraws what a Share began.
func takeBack(w *pd.Cluster, n *world.Node, c *pd.Command, share effects.Ticket, late effects.Duration) {
	given := pd.Command{
		Want: backs, Job: c.Job, Batch: c.Batch, Target: share, Body: &engine.Withdraw{Shared: share}, Pages: c.Pages,
	}
	patience := Patience(n)
	t := pd.GiveIn(w, n, late, given, patience)
	if d, yes := w.Strikes(plan.FaultAbort, w.Commands[t-1].Name, 0); yes {
		w.ForNode(n, late+d.Heavy(20*effects.Millisecond), world.Delivery{Kind: world.KindAbort, A: uint64(t)})
	}
	if w.Struck(plan.FaultAgain, w.Commands[t-1].Name, 0) {
		pd.GiveIn(w, n, late, given, patience)
	}
}

// back has an engine use what it has taken back.
func back(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	if e.Code == effects.Cancelled {
		again := *c
		takeBack(w, n, &again, c.Target, effects.Millisecond)
	}
	if e.Code != effects.OK {
		return
	}
	if pd.OnWithdrawn.Report(&w.Panel, n.ID, pd.Withdrawn{Node: n, Command: c}); w.Failure != nil {
		return
	}
	w.Commands[c.Target-1].Released = true
	for _, p := range c.Pages {
		n.Pool.Pages[p.Index].Stamps = [world.Parts]world.Stamp{}
		n.Pool.Touch(p.Index)
	}
	w.Release(n, w.Jobs[c.Job].Batches[c.Batch].Reserve)
}

// readable says whether a command is of pages that are shared, as far as their engine knows.
func readable(x *pd.Command) bool {
	return x.Want == lets && x.Over && x.Code == effects.OK && !x.Released
}
