package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkScatterOpen       = oracle.NewCheck("L1", "scatters of open fetches")
	checkScatterOrder      = oracle.NewCheck("S15", "order of scatters")
	checkScatterWhole      = oracle.NewCheck("S1", "scattered pages of vanilla senders")
	checkScatterGeneration = oracle.NewCheck("S2", "generations of scattered pages")
)

// scatterOracle judges the pages that device code of an engine is handed to scatter.
type scatterOracle struct{ oracleBase }

func (*scatterOracle) subscribe(l *oracle.Subscriptions[scatterOracle]) {
	oracle.On(l, func(o *scatterOracle, _ *oracle.Call, e world.ScatteringChunks) { o.verifyScatter(e.Node, e.Effect) })
	oracle.On(l, func(o *scatterOracle, _ *oracle.Call, e world.ScatterEnded) { o.endScatter(e.Node, e.Ticket, e.Code) })
}

// verifyScatter checks that a Scatter hands the next chunks of a command to the engine, whole, from pages that nothing
// stores into. The pages are pinned until the engine's device code has read the pages.
func (or *scatterOracle) verifyScatter(n *world.Node, e *effects.Scatter) bool {
	c := or.w.CommandOf(n, e.Ticket)
	or.countJudged(checkScatterOpen, checkScatterOrder)
	switch {
	case c == nil || c.Finished:
		or.fail(checkScatterOpen, "node %d scatters chunks of ticket %d, which it was not given or has delivered",
			n.AsSubject(), oracle.Ticket(e.Ticket))
		return false
	case c.Device.Corr != 0:
		or.fail(checkScatterOrder, "node %d scatters chunks of ticket %d while other chunks of the command are being scattered",
			n.AsSubject(), oracle.Ticket(e.Ticket))
		return false
	case c.Kind != plan.CommandFetch:
		or.fail(checkScatterOpen, "node %d scatters chunks of ticket %d (%s)", n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind)
		return false
	case e.First != c.Device.Received || e.First+uint32(len(e.Pages)) > c.Count:
		or.fail(checkScatterOrder,
			"node %d scatters %d chunks of ticket %d from chunk %d; its engine has %d of %d",
			n.AsSubject(), len(e.Pages), oracle.Ticket(e.Ticket), e.First, c.Device.Received, c.Count)
		return false
	}
	for _, p := range e.Pages {
		pg := &n.Pool.Pages[p.Index]
		if pg.TrustedGrant == 0 {
			or.countJudged(checkScatterWhole, checkScatterGeneration)
		}
		switch {
		case pg.TrustedGrant != 0:
			or.countVoid(checkScatterWhole)
			continue // Exempt by name.
		case n.Grants[pg.Granted].IsBearer() && or.w.Conditions.Leased:
			or.fail(checkScatterWhole, "node %d scatters page %d of a vanilla sender, which was not committed",
				n.AsSubject(), n.PageSubject(p.Index))
			return false
		case pg.Writers > 0:
			or.fail(checkScatterOrder, "node %d scatters page %d while a transfer may still store into it",
				n.AsSubject(), n.PageSubject(p.Index))
			return false
		case p.Generation != pg.LastGeneration:
			or.fail(checkScatterGeneration, "node %d scatters page %d in generation %d, and the page has generation %d",
				n.AsSubject(), n.PageSubject(p.Index), p.Generation, pg.LastGeneration)
			return false
		}
		if or.oracles().readFills.verifyReady(n, p.Index); or.w.Failure != nil {
			return false
		}
	}
	c.Device.Corr, c.Device.First, c.Device.Pages = e.Corr, e.First, or.w.Arenas.EffectPages.CopySlice(e.Pages)
	for _, p := range e.Pages {
		n.Pool.Pages[p.Index].Scatters++
		n.Pool.UpdateInUse(p.Index)
	}
	or.oracles().engineReads.verifyContentFrom(n, &or.w.Jobs[c.Job], c.From+int(e.First), c.Device.Pages)
	return or.w.Failure == nil
}

// endScatter ends a scatter: the content of the pages may not have changed meanwhile.
func (or *scatterOracle) endScatter(n *world.Node, t effects.Ticket, code effects.Code) {
	c := &or.w.Commands[t-1]
	or.oracles().engineReads.verifyContentFrom(n, &or.w.Jobs[c.Job], c.From+int(c.Device.First), c.Device.Pages)
	for _, p := range c.Device.Pages {
		n.Pool.Pages[p.Index].Scatters--
		n.Pool.UpdateInUse(p.Index)
	}
	if code == effects.OK {
		c.Device.Received += uint32(len(c.Device.Pages))
	}
	c.Device.Corr, c.Device.Pages = 0, nil
}
