package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/world"
)

// What is judged here.
var (
	checkScatterOpen       = oracle.NewCheck("L1", "scatters of open fetches")
	checkScatterOrder      = oracle.NewCheck("S15", "scatters in order")
	checkScatterWhole      = oracle.NewCheck("S1", "scattered pages of plain senders")
	checkScatterGeneration = oracle.NewCheck("S2", "generations of scattered pages")
)

// scatterOracle judges what device code is handed.
type scatterOracle struct{ judge }

// scattering checks that a command's engine is handed its next chunks, whole and its own, from
// pages that nothing stores into, and pins those until the engine's device code has read them.
func (or *scatterOracle) scattering(n *world.Node, e *effects.Scatter) bool {
	c := or.w.commandOf(n, e.Ticket)
	or.judged(checkScatterOpen, checkScatterOrder)
	switch {
	case c == nil || c.over:
		or.fail(checkScatterOpen, "node %d scatters chunks of ticket %d, which it was not given or has delivered",
			n.It(), oracle.Ticket(e.Ticket))
		return false
	case c.device.Corr != 0:
		or.fail(checkScatterOrder, "node %d scatters chunks of ticket %d beside others of it",
			n.It(), oracle.Ticket(e.Ticket))
		return false
	case c.want != plan.WantFetch:
		or.fail(checkScatterOpen, "node %d scatters chunks of ticket %d (%s)", n.It(), oracle.Ticket(e.Ticket), c.want)
		return false
	case e.First != c.device.Got || e.First+uint32(len(e.Pages)) > c.count:
		or.fail(checkScatterOrder,
			"node %d scatters %d chunks of ticket %d from chunk %d; its engine has %d of %d",
			n.It(), len(e.Pages), oracle.Ticket(e.Ticket), e.First, c.device.Got, c.count)
		return false
	}
	for _, p := range e.Pages {
		pg := &n.Pool.Pages[p.Index]
		if pg.Trusted == 0 {
			or.judged(checkScatterWhole, checkScatterGeneration)
		}
		switch {
		case pg.Trusted != 0:
			or.void(checkScatterWhole)
			continue // Exempt by name.
		case n.Grants[pg.Granted].Bearer() && or.w.Setting.Leased:
			or.fail(checkScatterWhole, "node %d scatters page %d of a plain sender, of which nobody said that it is whole",
				n.It(), n.ItsPage(p.Index))
			return false
		case pg.Writers > 0:
			or.fail(checkScatterOrder, "node %d scatters page %d while a transfer may still store into it",
				n.It(), n.ItsPage(p.Index))
			return false
		case p.Generation != pg.Last:
			or.fail(checkScatterGeneration, "node %d scatters page %d of generation %d, it is in %d",
				n.It(), n.ItsPage(p.Index), p.Generation, pg.Last)
			return false
		}
		if or.all().fills.believing(n, p.Index); or.w.Failure != nil {
			return false
		}
	}
	c.device.Corr, c.device.First, c.device.Pages = e.Corr, e.First, or.w.Stock.Spans.Keep(e.Pages)
	for _, p := range e.Pages {
		n.Pool.Pages[p.Index].Scatters++
		n.Pool.Touch(p.Index)
	}
	or.all().reads.verifyFrom(n, &or.w.jobs[c.job], c.from+int(e.First), c.device.Pages)
	return or.w.Failure == nil
}

// scattered ends that: nothing may have changed meanwhile.
func (or *scatterOracle) scattered(n *world.Node, t effects.Ticket, code effects.Code) {
	c := &or.w.commands[t-1]
	or.all().reads.verifyFrom(n, &or.w.jobs[c.job], c.from+int(c.device.First), c.device.Pages)
	for _, p := range c.device.Pages {
		n.Pool.Pages[p.Index].Scatters--
		n.Pool.Touch(p.Index)
	}
	if code == effects.OK {
		c.device.Got += uint32(len(c.device.Pages))
	}
	c.device.Corr, c.device.Pages = 0, nil
}
