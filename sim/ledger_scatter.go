package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
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
func (or *scatterOracle) scattering(n *node, e *effects.Scatter) bool {
	c := or.w.commandOf(n, e.Ticket)
	or.judged(checkScatterOpen, checkScatterOrder)
	switch {
	case c == nil || c.over:
		or.fail(checkScatterOpen, "node %d scatters chunks of ticket %d, which it was not given or has delivered",
			n.it(), oracle.Ticket(e.Ticket))
		return false
	case c.device.corr != 0:
		or.fail(checkScatterOrder, "node %d scatters chunks of ticket %d beside others of it",
			n.it(), oracle.Ticket(e.Ticket))
		return false
	case c.want != plan.WantFetch:
		or.fail(checkScatterOpen, "node %d scatters chunks of ticket %d (%s)", n.it(), oracle.Ticket(e.Ticket), c.want)
		return false
	case e.First != c.device.got || e.First+uint32(len(e.Pages)) > c.count:
		or.fail(checkScatterOrder,
			"node %d scatters %d chunks of ticket %d from chunk %d; its engine has %d of %d",
			n.it(), len(e.Pages), oracle.Ticket(e.Ticket), e.First, c.device.got, c.count)
		return false
	}
	for _, p := range e.Pages {
		pg := &n.pool.pages[p.Index]
		if pg.trusted == 0 {
			or.judged(checkScatterWhole, checkScatterGeneration)
		}
		switch {
		case pg.trusted != 0:
			or.void(checkScatterWhole)
			continue // Exempt by name.
		case n.grants[pg.granted].bearer() && or.w.plan.Leased:
			or.fail(checkScatterWhole, "node %d scatters page %d of a plain sender, of which nobody said that it is whole",
				n.it(), n.itsPage(p.Index))
			return false
		case pg.writers > 0:
			or.fail(checkScatterOrder, "node %d scatters page %d while a transfer may still store into it",
				n.it(), n.itsPage(p.Index))
			return false
		case p.Generation != pg.last:
			or.fail(checkScatterGeneration, "node %d scatters page %d of generation %d, it is in %d",
				n.it(), n.itsPage(p.Index), p.Generation, pg.last)
			return false
		}
		if or.all().fills.believing(n, p.Index); or.w.failure != nil {
			return false
		}
	}
	c.device.corr, c.device.first, c.device.pages = e.Corr, e.First, or.w.stock.spans.keep(e.Pages)
	for _, p := range e.Pages {
		n.pool.pages[p.Index].scatters++
		n.pool.touch(p.Index)
	}
	or.all().reads.verifyFrom(n, &or.w.jobs[c.job], c.from+int(e.First), c.device.pages)
	return or.w.failure == nil
}

// scattered ends that: nothing may have changed meanwhile.
func (or *scatterOracle) scattered(n *node, t effects.Ticket, code effects.Code) {
	c := &or.w.commands[t-1]
	or.all().reads.verifyFrom(n, &or.w.jobs[c.job], c.from+int(c.device.first), c.device.pages)
	for _, p := range c.device.pages {
		n.pool.pages[p.Index].scatters--
		n.pool.touch(p.Index)
	}
	if code == effects.OK {
		c.device.got += uint32(len(c.device.pages))
	}
	c.device.corr, c.device.pages = 0, nil
}
