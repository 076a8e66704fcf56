package sim

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
)

// Offload: from the Copy on, a page of the host pool is its put's until that has its outcome, and beyond
// that for as long as a copy stores into it or a grant lets it be read.

// What is judged here.
var (
	checkCopyPools      = newCheck("contract", "pools of copies")
	checkCopyLent       = newCheck("S19", "pages copied from")
	checkCopyLength     = newCheck("S21", "lengths of copies")
	checkCopyAlone      = newCheck("S4", "pages copied to")
	checkCopyGeneration = newCheck("S2", "generations of pages copied to")
	checkCopyInTurn     = newCheck("L3", "copies in turn")
	checkHostMark       = newCheck("S6", "host pages below the mark")
	checkMove           = newCheck("S19", "halves of pages moved from")
	checkMoveTo         = newCheck("S3", "halves of pages moved to")
	checkLoanOfCopy     = newCheck("S19", "lent pages of the host pool")
	checkLoanCopyLength = newCheck("S21", "lengths of lent host pages")
	checkLoanCopyWhole  = newCheck("S1", "content of lent host pages")
	checkHostFree       = newCheck("S5", "free host pages")
	checkHostWaits      = newCheck("L3", "puts that wait for host pages")
)

// copying checks a Copy as it leaves the machine: it takes chunks that the engine has put, in its order, to pages
// that are nobody else's and below the high-water mark.
func (l *ledger) copying(n *node, c *offload) {
	for _, p := range c.pairs {
		l.judged(checkCopyPools, checkCopyLent, checkCopyLength, checkCopyAlone, checkCopyGeneration)
		if p.From.Pool != c.from.number || p.To.Pool != c.to.number || n.device == nil {
			l.fail(checkCopyPools, "node %d copies page %d of a pool to one of the same", n.it(), n.itsPage(n.numbered(p.From)))
			return
		}
		src, dst := &c.from.pages[p.From.Index], &c.to.pages[p.To.Index]
		if src.reserved == 0 || src.last != p.From.Generation {
			l.fail(checkCopyLent, "node %d copies page %d, which its engine has not lent", n.it(), n.itsPage(n.numbered(p.From)))
			return
		}
		c.put = l.putOf(src.reserved)
		switch {
		case c.put == 0 || l.w.commands[c.put-1].ended():
			l.fail(checkCopyLent, "node %d copies page %d of ticket %d, whose memory is its engine's again",
				n.it(), n.itsPage(n.numbered(p.From)), oracle.Ticket(c.put))
		case !hasLength(l.w.commands[src.reserved-1].pages, p.From) || p.To.Length != p.From.Length:
			l.fail(checkCopyLength, "node %d copies %d bytes of page %d, more or fewer than its chunk has",
				n.it(), p.To.Length, n.itsPage(n.numbered(p.From)))
		case dst.writers > 0 || dst.readers > 0 || l.owned(dst):
			l.fail(checkCopyAlone, "node %d copies to page %d for ticket %d, which is another's",
				n.it(), n.itsPage(p.To.Index), oracle.Ticket(c.put))
		case p.To.Generation <= dst.last || p.To.Generation != dst.generation:
			l.fail(checkCopyGeneration, "node %d copies to page %d in generation %d after %d",
				n.it(), n.itsPage(p.To.Index), p.To.Generation, dst.last)
		}
		if l.w.failure != nil {
			return
		}
		dst.owner, dst.origin, dst.last = c.put, p.From, p.To.Generation
		src.readers++
		dst.writers++
		c.from.touch(p.From.Index)
		c.to.touch(p.To.Index)
	}
	l.copiedInTurn(n, c.put)
	l.filled(n)
}

// owned says whether a page of a host pool is that of a put which has no outcome yet.
func (l *ledger) owned(pg *page) bool { return pg.owner != 0 && !l.w.commands[pg.owner-1].over }

// copiedInTurn checks that nobody waits longer for host pages.
func (l *ledger) copiedInTurn(n *node, put effects.Ticket) {
	if l.w.commands[put-1].copied {
		return // Its first copy was in turn.
	}
	l.judged(checkCopyInTurn)
	for _, t := range l.shortPuts(n) {
		if t == put {
			break
		}
		if l.w.commands[t-1].due != 0 {
			l.fail(checkCopyInTurn, "node %d copies chunks of ticket %d while ticket %d waits longer for host pages",
				n.it(), oracle.Ticket(put), oracle.Ticket(t))
			return
		}
	}
	l.w.commands[put-1].copied = true
}

// shortPuts are those of which nothing was copied, in order.
func (l *ledger) shortPuts(n *node) []effects.Ticket {
	n.seen.short = slices.DeleteFunc(n.seen.short, func(t effects.Ticket) bool {
		return l.w.commands[t-1].over || l.w.commands[t-1].copied
	})
	return n.seen.short
}

// filled checks the high-water mark of the host pool: pages count from when they are taken until they are free again (S6).
func (l *ledger) filled(n *node) {
	l.judged(checkHostMark)
	if taken, most := l.taken(n), l.w.lentMax(n); taken > most {
		l.fail(checkHostMark, "node %d has taken %d host pages, %d are allowed", n.it(), taken, most)
	}
}

func (l *ledger) taken(n *node) (count int) {
	for i := range n.pool.pages {
		pg := &n.pool.pages[i]
		lent := slices.ContainsFunc(n.pool.lent, func(g *grant) bool { return g.place(uint32(i)) >= 0 && l.w.standing(n, g) })
		if pg.writers > 0 || lent || l.owned(pg) {
			count++
		}
	}
	return count
}

// moving checks half a page as a device moves it: both pages are still the copy's.
func (l *ledger) moving(c *offload, p effects.CopyPair) {
	l.judged(checkMove, checkMoveTo)
	src, dst := &c.from.pages[p.From.Index], &c.to.pages[p.To.Index]
	switch {
	case !c.touching:
		l.fail(checkMove, "a copy of ticket %d touches page %d of node %d after it was settled",
			oracle.Ticket(c.put), c.node.itsPage(c.node.numbered(p.From)), c.node.it())
	case src.reserved == 0 || src.last != p.From.Generation || src.readers == 0:
		l.fail(checkMove, "a copy of ticket %d reads page %d of node %d, which is not lent",
			oracle.Ticket(c.put), c.node.itsPage(c.node.numbered(p.From)), c.node.it())
	case dst.last != p.To.Generation:
		l.fail(checkMoveTo, "a copy of ticket %d stores into page %d of node %d in generation %d instead of %d",
			oracle.Ticket(c.put), c.node.itsPage(p.To.Index), c.node.it(), dst.last, p.To.Generation)
	}
}

// copySettled ends a copy, as its machine is told so.
func (l *ledger) copySettled(c *offload) {
	c.touching = false
	for _, p := range c.pairs {
		c.from.pages[p.From.Index].readers--
		c.from.touch(p.From.Index)
		c.to.pages[p.To.Index].writers--
		c.to.touch(p.To.Index)
	}
}

// lendingCopy checks a page of a host pool as it is lent: it is its put's, and holds its chunk whole.
func (l *ledger) lendingCopy(n *node, g *grant, p effects.Page) {
	l.judged(checkLoanOfCopy, checkLoanCopyLength, checkLoanCopyWhole)
	pg := &n.pool.pages[p.Index]
	switch {
	case !l.owned(pg) || !l.w.commands[pg.owner-1].returned:
		l.fail(checkLoanOfCopy, "node %d lends page %d under grant %d before its chunk was copied",
			n.it(), n.itsPage(p.Index), n.itsGrant(g.id))
		return
	case pg.origin.Length != p.Length:
		l.fail(checkLoanCopyLength, "node %d lends %d bytes of page %d, more or fewer than its chunk has",
			n.it(), p.Length, n.itsPage(p.Index))
		return
	}
	for part := range n.pool.partsOf(p.Length) {
		if s := pg.stamps[part]; s == 0 || s.part() != part || s.key() != pg.stamps[0].key() || s.fill() != pg.stamps[0].fill() {
			l.fail(checkLoanCopyWhole, "node %d lends page %d under grant %d, which is not whole",
				n.it(), n.itsPage(p.Index), n.itsGrant(g.id))
			return
		}
	}
	g.loan.put = pg.owner
}

// hostPages checks, after a step, what its machine counts of the host pool, and that no put waits for pages which are there.
func (l *ledger) hostPages(n *node, total, free int) {
	l.judged(checkHostFree)
	taken := l.taken(n)
	if total != len(n.pool.pages) || free < 0 || free+taken > total {
		l.fail(checkHostFree, "node %d counts %d of %d host pages free while %d are in use", n.it(), free, total, taken)
		return
	}
	for _, t := range l.shortPuts(n) {
		if c := &l.w.commands[t-1]; c.due != 0 {
			l.judged(checkHostWaits)
			if total-free+len(c.pages) <= l.w.lentMax(n) {
				l.fail(checkHostWaits, "node %d lets ticket %d wait for %d host pages although %d of %d are free",
					n.it(), oracle.Ticket(t), len(c.pages), free, total)
			}
			return
		}
	}
}
