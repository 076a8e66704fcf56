package p2p

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// An engine sometimes lets peers read the chunks that it has put, in the original pages. Later the engine
// withdraws the share, fills the pages with other content and releases them. To test refusals, the engine sometimes
// shares the same pages twice, hands shared pages over to the cache, or withdraws twice.

// The kinds of the share and withdraw commands. The pages of both are the shared pages.
var (
	wantShare    = plan.NewCommandKind(17, "share", true)
	wantWithdraw = plan.NewCommandKind(18, "withdraw", true)
)

// maybeShare decides at random whether an engine shares the chunks of a put after the memory was returned. The put must
// cover all pages of a Reserve.
func maybeShare(w *pd.Cluster, n *world.Node, c *pd.Command) pd.PageUse {
	j := &w.Jobs[c.Job]
	b := &j.Batches[c.Batch]
	if !n.IsCache || n.Leaving || len(w.Commands[b.Reserve-1].Pages) > len(c.Pages) ||
		!draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 30).ChancePermille(300) {
		return pd.PagesUnused
	}
	body := engine.Share{Reserved: b.Reserve}
	for i, p := range c.Pages {
		if p.Length == n.Pool.PageBytes {
			body.Keys, body.Pages = append(body.Keys, j.Keys[b.From+i]), append(body.Pages, p)
		}
	}
	if len(body.Keys) == 0 {
		return pd.PagesUnused
	}
	w.GiveCommand(n, pd.Command{Kind: wantShare, Job: c.Job, Batch: c.Batch, Target: b.Reserve, Body: &body, Pages: body.Pages}, 0)
	return pd.PagesLent
}

// shareTimeMax is the longest time for which an engine shares pages. The time does not exceed the time that a run waits
// for engines after the faults have ended.
const shareTimeMax = 6 * effects.Second

// handleShareOutcome handles the outcome of a share command. The engine withdraws a share later, and releases pages
// that were not shared.
func handleShareOutcome(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	switch c := *c; {
	case findOverlap(w, e.Ticket, isShared) != 0: // The pages were shared before.
	case e.Code != effects.OK:
		w.ReleaseReserve(n, c.Target)
	default:
		pd.OnPagesShared.Report(&w.Panel, n.ID, pd.PagesShared{Node: n, Command: &c})
		if d, yes := w.DrawStrike(plan.FaultConflictingCommand, c.Name, 0); yes {
			repeated := pd.Command{Kind: c.Kind, Job: c.Job, Batch: c.Batch, Target: c.Target, Body: c.Body, Pages: c.Pages}
			if d.ChancePermille(500) {
				body := engine.Store(*c.Body.(*engine.Share))
				repeated.Kind, repeated.Body = wantStore, &body
			}
			w.GiveCommand(n, repeated, 0)
		}
		d, mean := draw.Hash(w.Seed, draw.Engine, uint64(c.Name), 31), 2*effects.Second
		if d.Rehash().Rehash().ChancePermille(400) { // Peers often still read the pages.
			mean = 100 * effects.Millisecond
		}
		delay := d.HeavyTail(mean)
		giveWithdraw(w, n, &c, e.Ticket, min(delay, shareTimeMax))
	}
}

// giveWithdraw gives a withdraw command for a share after the given delay.
func giveWithdraw(w *pd.Cluster, n *world.Node, c *pd.Command, share effects.Ticket, delay effects.Duration) {
	command := pd.Command{
		Kind: wantWithdraw, Job: c.Job, Batch: c.Batch, Target: share, Body: &engine.Withdraw{Shared: share}, Pages: c.Pages,
	}
	timeout := WithdrawTimeout(n)
	t := pd.GiveCommandAfter(w, n, delay, command, timeout)
	if d, yes := w.DrawStrike(plan.FaultCommandAborted, w.Commands[t-1].Name, 0); yes {
		w.QueueForNode(n, delay+d.HeavyTail(20*effects.Millisecond), world.Delivery{Kind: world.KindAbortCommand, A: uint64(t)})
	}
	if w.IsStruck(plan.FaultReleasedTwice, w.Commands[t-1].Name, 0) {
		pd.GiveCommandAfter(w, n, delay, command, timeout)
	}
}

// handleWithdrawOutcome handles the outcome of a withdraw command. After a success the engine writes into the pages and
// releases them.
func handleWithdrawOutcome(w *pd.Cluster, n *world.Node, e *effects.Deliver, c *pd.Command) {
	if e.Code == effects.Cancelled {
		repeated := *c
		giveWithdraw(w, n, &repeated, c.Target, effects.Millisecond)
	}
	if e.Code != effects.OK {
		return
	}
	if pd.OnPagesWithdrawn.Report(&w.Panel, n.ID, pd.PagesWithdrawn{Node: n, Command: c}); w.Failure != nil {
		return
	}
	w.Commands[c.Target-1].Released = true
	for _, p := range c.Pages {
		n.Pool.Pages[p.Index].Stamps = [world.Parts]world.Stamp{}
		n.Pool.UpdateInUse(p.Index)
	}
	w.ReleaseReserve(n, w.Jobs[c.Job].Batches[c.Batch].Reserve)
}

// isShared reports whether a command is a share that is in force as far as the engine knows.
func isShared(x *pd.Command) bool {
	return x.Kind == wantShare && x.Finished && x.Code == effects.OK && !x.Released
}
