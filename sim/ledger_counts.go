package sim

// afterStep compares what the machine counts with what the drivers saw.
func (l *ledger) afterStep(n *node) {
	s := n.machine.Stats()
	held := 0
	for i := range n.pool.pages {
		pg := &n.pool.pages[i]
		if pg.writers > 0 || pg.readers > 0 || pg.reserved != 0 || pg.pins > 0 || pg.granted != 0 && !l.w.plan.Leased {
			held++
		}
	}
	if s.Operations > s.Grants || s.Retries > s.Waiters {
		l.w.fail("S17", "node %d remembers %d operations for %d grants, and %d for %d requests that wait", n.id, s.Operations, s.Grants, s.Retries, s.Waiters)
		return
	}
	l.queues(n)
	if s.PagesTotal != len(n.pool.pages) || s.PagesFree < 0 || s.PagesFree+held > s.PagesTotal {
		l.w.fail("S5", "node %d counts %d of %d pages free while %d are in use", n.id, s.PagesFree, s.PagesTotal, held)
	}
}
