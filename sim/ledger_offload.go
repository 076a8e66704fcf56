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
	checkCopyPools      = oracle.NewCheck("contract", "pools of copies")
	checkCopyLent       = oracle.NewCheck("S19", "pages copied from")
	checkCopyLength     = oracle.NewCheck("S21", "lengths of copies")
	checkCopyAlone      = oracle.NewCheck("S4", "pages copied to")
	checkCopyGeneration = oracle.NewCheck("S2", "generations of pages copied to")
	checkCopyInTurn     = oracle.NewCheck("L3", "copies in turn")
	checkHostMark       = oracle.NewCheck("S6", "host pages below the mark")
	checkMove           = oracle.NewCheck("S19", "halves of pages moved from")
	checkMoveTo         = oracle.NewCheck("S3", "halves of pages moved to")
	checkLoanOfCopy     = oracle.NewCheck("S19", "lent pages of the host pool")
	checkLoanCopyLength = oracle.NewCheck("S21", "lengths of lent host pages")
	checkLoanCopyWhole  = oracle.NewCheck("S1", "content of lent host pages")
	checkHostFree       = oracle.NewCheck("S5", "free host pages")
	checkHostWaits      = oracle.NewCheck("L3", "puts that wait for host pages")
)

// offloadOracle judges copies to the host pool.
type offloadOracle struct {
	judge
	perLife[offloadLife]
}

type offloadLife struct {
	short []effects.Ticket // puts given, but for some that are over, or whose chunks were copied
}

func (s *offloadLife) empty() { *s = offloadLife{short: s.short[:0]} }

// given notes a put as its engine gives it.
func (or *offloadOracle) given(n *node, t effects.Ticket) { or.at(n).short = append(or.at(n).short, t) }

// copying checks a Copy as it leaves the machine: it takes chunks that the engine has put, in its order, to pages
// that are nobody else's and below the high-water mark.
func (or *offloadOracle) copying(n *node, c *offload) {
	for _, p := range c.pairs {
		or.judged(checkCopyPools, checkCopyLent, checkCopyLength, checkCopyAlone, checkCopyGeneration)
		if p.From.Pool != c.from.number || p.To.Pool != c.to.number || n.device == nil {
			or.fail(checkCopyPools, "node %d copies page %d of a pool to one of the same", n.it(), n.itsPage(n.numbered(p.From)))
			return
		}
		src, dst := &c.from.pages[p.From.Index], &c.to.pages[p.To.Index]
		if src.reserved == 0 || src.last != p.From.Generation {
			or.fail(checkCopyLent, "node %d copies page %d, which its engine has not lent",
				n.it(), n.itsPage(n.numbered(p.From)))
			return
		}
		c.put = or.all().loans.putOf(src.reserved)
		switch {
		case c.put == 0 || or.w.commands[c.put-1].ended():
			or.fail(checkCopyLent, "node %d copies page %d of ticket %d, whose memory is its engine's again",
				n.it(), n.itsPage(n.numbered(p.From)), oracle.Ticket(c.put))
		case !hasLength(or.w.commands[src.reserved-1].pages, p.From) || p.To.Length != p.From.Length:
			or.fail(checkCopyLength, "node %d copies %d bytes of page %d, more or fewer than its chunk has",
				n.it(), p.To.Length, n.itsPage(n.numbered(p.From)))
		case dst.writers > 0 || dst.readers > 0 || or.owned(dst):
			or.fail(checkCopyAlone, "node %d copies to page %d for ticket %d, which is another's",
				n.it(), n.itsPage(p.To.Index), oracle.Ticket(c.put))
		case p.To.Generation <= dst.last || p.To.Generation != dst.generation:
			or.fail(checkCopyGeneration, "node %d copies to page %d in generation %d after %d",
				n.it(), n.itsPage(p.To.Index), p.To.Generation, dst.last)
		}
		if or.w.failure != nil {
			return
		}
		dst.owner, dst.origin, dst.last = c.put, p.From, p.To.Generation
		src.readers++
		dst.writers++
		c.from.touch(p.From.Index)
		c.to.touch(p.To.Index)
	}
	or.copiedInTurn(n, c.put)
	or.filled(n)
}

// owned says whether a page of a host pool is that of a put which has no outcome yet.
func (or *offloadOracle) owned(pg *page) bool {
	return pg.owner != 0 && !or.w.commands[pg.owner-1].over
}

// copiedInTurn checks that nobody waits longer for host pages.
func (or *offloadOracle) copiedInTurn(n *node, put effects.Ticket) {
	if or.w.commands[put-1].copied {
		return // Its first copy was in turn.
	}
	or.judged(checkCopyInTurn)
	for _, t := range or.shortPuts(n) {
		if t == put {
			break
		}
		if or.w.commands[t-1].due != 0 {
			or.fail(checkCopyInTurn, "node %d copies chunks of ticket %d while ticket %d waits longer for host pages",
				n.it(), oracle.Ticket(put), oracle.Ticket(t))
			return
		}
	}
	or.w.commands[put-1].copied = true
}

// shortPuts are those of which nothing was copied, in order.
func (or *offloadOracle) shortPuts(n *node) []effects.Ticket {
	my := or.at(n)
	my.short = slices.DeleteFunc(my.short, func(t effects.Ticket) bool {
		return or.w.commands[t-1].over || or.w.commands[t-1].copied
	})
	return my.short
}

// filled checks the high-water mark of the host pool: pages count from when they are taken until they are free again (S6).
func (or *offloadOracle) filled(n *node) {
	or.judged(checkHostMark)
	if taken, most := or.taken(n), or.w.lentMax(n); taken > most {
		or.fail(checkHostMark, "node %d has taken %d host pages, %d are allowed", n.it(), taken, most)
	}
}

func (or *offloadOracle) taken(n *node) (count int) {
	for i := range n.pool.pages {
		pg := &n.pool.pages[i]
		lent := slices.ContainsFunc(n.pool.lent, func(g *grant) bool {
			return g.place(uint32(i)) >= 0 && or.w.standing(n, g)
		})
		if pg.writers > 0 || lent || or.owned(pg) {
			count++
		}
	}
	return count
}

// moving checks half a page as a device moves it: both pages are still the copy's.
func (or *offloadOracle) moving(c *offload, p effects.CopyPair) {
	or.judged(checkMove, checkMoveTo)
	src, dst := &c.from.pages[p.From.Index], &c.to.pages[p.To.Index]
	switch {
	case !c.touching:
		or.fail(checkMove, "a copy of ticket %d touches page %d of node %d after it was settled",
			oracle.Ticket(c.put), c.node.itsPage(c.node.numbered(p.From)), c.node.it())
	case src.reserved == 0 || src.last != p.From.Generation || src.readers == 0:
		or.fail(checkMove, "a copy of ticket %d reads page %d of node %d, which is not lent",
			oracle.Ticket(c.put), c.node.itsPage(c.node.numbered(p.From)), c.node.it())
	case dst.last != p.To.Generation:
		or.fail(checkMoveTo, "a copy of ticket %d stores into page %d of node %d in generation %d instead of %d",
			oracle.Ticket(c.put), c.node.itsPage(p.To.Index), c.node.it(), dst.last, p.To.Generation)
	}
}

// copySettled ends a copy, as its machine is told so.
func (or *offloadOracle) copySettled(c *offload) {
	c.touching = false
	for _, p := range c.pairs {
		c.from.pages[p.From.Index].readers--
		c.from.touch(p.From.Index)
		c.to.pages[p.To.Index].writers--
		c.to.touch(p.To.Index)
	}
}

// lendingCopy checks a page of a host pool as it is lent: it is its put's, and holds its chunk whole.
func (or *offloadOracle) lendingCopy(n *node, g *grant, p effects.Page) {
	or.judged(checkLoanOfCopy, checkLoanCopyLength, checkLoanCopyWhole)
	pg := &n.pool.pages[p.Index]
	switch {
	case !or.owned(pg) || !or.w.commands[pg.owner-1].returned:
		or.fail(checkLoanOfCopy, "node %d lends page %d under grant %d before its chunk was copied",
			n.it(), n.itsPage(p.Index), n.itsGrant(g.id))
		return
	case pg.origin.Length != p.Length:
		or.fail(checkLoanCopyLength, "node %d lends %d bytes of page %d, more or fewer than its chunk has",
			n.it(), p.Length, n.itsPage(p.Index))
		return
	}
	for part := range n.pool.partsOf(p.Length) {
		if s := pg.stamps[part]; s == 0 || s.part() != part || s.key() != pg.stamps[0].key() || s.fill() != pg.stamps[0].fill() {
			or.fail(checkLoanCopyWhole, "node %d lends page %d under grant %d, which is not whole",
				n.it(), n.itsPage(p.Index), n.itsGrant(g.id))
			return
		}
	}
	g.loan.put = pg.owner
}

// hostPages checks, after a step, what its machine counts of the host pool, and that no put waits for pages which are there.
func (or *offloadOracle) hostPages(n *node, total, free int) {
	or.judged(checkHostFree)
	taken := or.taken(n)
	if total != len(n.pool.pages) || free < 0 || free+taken > total {
		or.fail(checkHostFree, "node %d counts %d of %d host pages free while %d are in use", n.it(), free, total, taken)
		return
	}
	for _, t := range or.shortPuts(n) {
		if c := &or.w.commands[t-1]; c.due != 0 {
			or.judged(checkHostWaits)
			if total-free+len(c.pages) <= or.w.lentMax(n) {
				or.fail(checkHostWaits, "node %d lets ticket %d wait for %d host pages although %d of %d are free",
					n.it(), oracle.Ticket(t), len(c.pages), free, total)
			}
			return
		}
	}
}
