package sim

// What is judged here.
var (
	checkRecount    = newCheck("contract", "pages in use, counted twice")
	checkOperations = newCheck("S17", "operations remembered")
	checkFree       = newCheck("S5", "free pages")
)

// inUse says whether somebody has a page, as drivers saw it.
func (pg *page) inUse(leased bool) bool {
	return pg.writers > 0 || pg.readers > 0 || pg.reserved != 0 || pg.pins > 0 || pg.scatters > 0 || pg.granted != 0 && !leased
}

// touch follows a change of one page in the number of those in use.
func (p *pool) touch(index uint32) {
	pg := &p.pages[index]
	if use := pg.inUse(p.leased); use != pg.held {
		pg.held = use
		if use {
			p.held++
		} else {
			p.held--
		}
	}
}

// recounted counts from scratch the pages that are in use.
func (l *ledger) recounted(n *node) {
	l.judged(checkRecount)
	for _, p := range []*pool{n.pool, n.engine()} {
		held := 0
		for i := range p.pages {
			if p.pages[i].inUse(p.leased) {
				held++
			}
		}
		if held != p.held {
			l.fail(checkRecount, "the ledger follows %d pages in use of node %d, there are %d", p.held, n.it(), held)
		}
	}
}

// recountEvery is how seldom the number of pages in use is counted from scratch: after one
// step in so many, besides whenever the node dies or should be quiet. In between it follows
// each change.
const recountEvery = 64

// afterStep compares what the machine counts with what the drivers saw.
func (l *ledger) afterStep(n *node) {
	s := n.stats()
	held := n.engine().held
	// The worlds of an explorer never get old.
	if n.steps%recountEvery == 1 || l.w.seed >= restlessSeed {
		l.recounted(n)
		l.givenBack(n, false)
	}
	l.judged(checkOperations, checkFree)
	if s.Operations > s.Grants || s.Retries > s.Waiters {
		l.fail(checkOperations, "node %d remembers %d operations for %d grants, and %d for %d requests that wait",
			n.it(), s.Operations, s.Grants, s.Retries, s.Waiters)
		return
	}
	l.together(n)
	l.crowding(n, &s)
	l.queues(n, &s)
	if n.delays {
		l.waitsForKept(n)
		l.fetches(n, &s)
	}
	if n.pulls {
		l.takenBack(n)
		l.pressed(n, &s)
	}
	if s.PagesTotal != len(n.engine().pages) || s.PagesFree < 0 || s.PagesFree+held > s.PagesTotal {
		l.fail(checkFree, "node %d counts %d of %d pages free while %d are in use", n.it(), s.PagesFree, s.PagesTotal, held)
	}
	if n.device != nil {
		l.hostPages(n, s.HostTotal, s.HostFree)
	}
}
