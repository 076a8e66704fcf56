package p2p

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine that shares hands the pages of a put over to the cache after the put has ended, and releases the
// remaining pages of the Reserve. To test refusals, the engine sometimes does so too early, or twice.

// wantStore is the kind of the store commands.
var wantStore = plan.NewCommandKind(15, "store", true)

// handlePut decides at random whether an engine hands the pages of a put over to the cache. While the put is in flight
// the rank must refuse this; afterwards it is allowed. The engine does not fill the pages again after such a command.
// Pages that are not handed over may be shared instead.
func handlePut(w *pd.Cluster, n *world.Node, ticket effects.Ticket, returned bool) pd.PageUse {
	if !pd.InfoOf(n).Cfg.Shares || draw.IsFixed(w.Seed) {
		return pd.PagesUnused
	}
	c := &w.Commands[ticket-1]
	if !returned {
		nth := uint64(3)
		if c.Finished {
			nth++
		}
		if d, yes := w.DrawStrike(plan.FaultConflictingCommand, c.Name, nth); yes {
			delay := d.HeavyTail(20 * effects.Millisecond)
			if d.Rehash().ChancePermille(400) {
				delay = 0
			}
			storeChunks(w, n, ticket, delay)
		}
		return pd.PagesUnused
	}
	if draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 20).ChancePermille(400) {
		storeChunks(w, n, ticket, 0)
	}
	reserve := w.Jobs[c.Job].Batches[c.Batch].Reserve
	if slices.ContainsFunc(w.Commands, func(c pd.Command) bool { return c.Kind == wantStore && c.Target == reserve }) {
		return pd.PagesUsed
	}
	return maybeShare(w, n, c)
}

// storeChunks hands the whole chunks of a put over to the cache: all of them, or all from the second on.
func storeChunks(w *pd.Cluster, n *world.Node, ticket effects.Ticket, delay effects.Duration) {
	c := &w.Commands[ticket-1]
	j := &w.Jobs[c.Job]
	b := &j.Batches[c.Batch]
	body := engine.Store{Reserved: b.Reserve}
	first := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 21).Between(0, len(c.Pages)-1)
	if first > 1 {
		first = 0
	}
	for i := first; i < len(c.Pages); i++ {
		if c.Pages[i].Length == n.Pool.PageBytes {
			body.Keys, body.Pages = append(body.Keys, j.Keys[b.From+i]), append(body.Pages, c.Pages[i])
		}
	}
	if len(body.Pages) == 0 {
		return
	}
	command := pd.Command{Kind: wantStore, Job: c.Job, Batch: c.Batch, Target: b.Reserve, Body: &body, Pages: body.Pages}
	t := pd.GiveCommandAfter(w, n, delay, command, 0)
	if w.IsStruck(plan.FaultReleasedTwice, w.Commands[t-1].Name, 0) {
		pd.GiveCommandAfter(w, n, delay, command, 0)
	}
}

// handleStored reports that the cache owns the stored pages.
func handleStored(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	if e.Code == effects.OK {
		pd.OnPagesStored.Report(&w.Panel, n.ID, pd.PagesStored{Node: n, Command: c})
	}
}

var (
	checkTaken = oracle.NewCheck("S19", "pages that caches take over")
	checkKept  = oracle.NewCheck("L1", "outcomes of stores")
)

// storeOracle checks that the cache accepts no page that a put or a share still uses, and that it accepts all other
// pages.
var storeOracle = oracle.New("stores",
	"a cache takes over pages that no other command of their engine uses, all of a command or "+
		"none", func(l *oracle.Subscriptions[struct{}]) {
		oracle.On(l, func(_ *struct{}, call *oracle.Call, e *effects.Deliver) {
			w := pd.ClusterOf(call)
			n := w.Nodes[call.Node()]
			if n.Custom {
				return
			}
			c := w.CommandOf(n, e.Ticket)
			if c == nil || c.Kind != wantStore || c.Finished {
				return
			}
			call.CountJudged(checkTaken, checkKept)
			used, gone := findOverlap(w, e.Ticket, func(x *pd.Command) bool {
				return x.Kind == plan.CommandPut && x.ReceivedStep != 0 && !x.HasMemoryBack() || isShared(x)
			}), findOverlap(w, e.Ticket, func(x *pd.Command) bool { return x.Kind == wantStore && x.Finished && x.Code == effects.OK })
			switch {
			case e.Code == effects.OK && used != 0:
				call.FailCheck(checkTaken, "node %d takes pages of ticket %d over into its cache while ticket %d may still use them",
					n.AsSubject(), oracle.Ticket(e.Ticket), oracle.Ticket(used))
			case e.Code == effects.OK && gone != 0:
				call.FailCheck(checkTaken, "node %d takes pages of ticket %d over into its cache, which has them from ticket %d",
					n.AsSubject(), oracle.Ticket(e.Ticket), oracle.Ticket(gone))
			case e.Code == effects.OK || e.Code == effects.TooMany || used != 0 || gone != 0 || !n.IsCache || n.Draining:
			case e.Code == effects.Forbidden && pd.LacksOwnTenant(n, c.Body):
			case !w.Commands[c.Target-1].Released:
				call.FailCheck(checkKept, "node %d refuses to store the pages of ticket %d, although the engine owns them: %s",
					n.AsSubject(), oracle.Ticket(e.Ticket), e.Code)
			}
		})
	})

// findOverlap returns a command of the same incarnation that has a page in common with command of and for which matches
// returns true, or 0 if there is none.
func findOverlap(w *pd.Cluster, ticket effects.Ticket, matches func(x *pd.Command) bool) effects.Ticket {
	c := &w.Commands[ticket-1]
	for i := range w.Commands {
		x, t := &w.Commands[i], effects.Ticket(i+1)
		if t != ticket && x.Node == c.Node && x.Incarnation == c.Incarnation && matches(x) && slices.ContainsFunc(x.Pages,
			func(p effects.Page) bool {
				return slices.ContainsFunc(c.Pages,
					func(q effects.Page) bool { return p.Index == q.Index && p.Generation == q.Generation })
			}) {
			return t
		}
	}
	return 0
}
