package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
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
	checkLoanOfCopy     = oracle.NewCheck("S19", "leased pages of the host pool")
	checkLoanCopyLength = oracle.NewCheck("S21", "lengths of leased host pages")
	checkLoanCopyWhole  = oracle.NewCheck("S1", "content of leased host pages")
	checkHostFree       = oracle.NewCheck("S5", "free host pages")
	checkHostWaits      = oracle.NewCheck("L3", "puts that wait for host pages")
)

// offloadOracle judges copies to the host pool.
type offloadOracle struct {
	judge
	perLife[offloadLife]
	lent []bool `snap:"scratch"` // by page: it is in a read lease that stands
}

type offloadLife struct {
	short []effects.Ticket // puts given, but for some that are over, or whose chunks were copied
}

func (s *offloadLife) empty() { *s = offloadLife{short: s.short[:0]} }

// given notes a put as its engine gives it.
func (or *offloadOracle) given(n *world.Node, t effects.Ticket) {
	or.at(n).short = append(or.at(n).short, t)
}

// copying checks a Copy as it leaves the machine: it takes chunks that the engine has put, in its order, to pages
// that are nobody else's and below the high-water mark.
func (or *offloadOracle) copying(n *world.Node, c *world.Offload) {
	for _, p := range c.Pairs {
		or.judged(checkCopyPools, checkCopyLent, checkCopyLength, checkCopyAlone, checkCopyGeneration)
		if p.From.Pool != c.From.Number || p.To.Pool != c.To.Number || n.Device == nil {
			or.fail(checkCopyPools, "node %d copies page %d of a pool to one of the same", n.It(), n.ItsPage(n.Numbered(p.From)))
			return
		}
		src, dst := &c.From.Pages[p.From.Index], &c.To.Pages[p.To.Index]
		if src.Reserved == 0 || src.Last != p.From.Generation {
			or.fail(checkCopyLent, "node %d copies page %d, which its engine has not handed over",
				n.It(), n.ItsPage(n.Numbered(p.From)))
			return
		}
		c.Put = or.all().loans.putOf(src.Reserved, p.From)
		switch {
		case c.Put == 0 || or.w.Commands[c.Put-1].Ended():
			or.fail(checkCopyLent, "node %d copies page %d of ticket %d, whose memory is its engine's again",
				n.It(), n.ItsPage(n.Numbered(p.From)), oracle.Ticket(c.Put))
		case !hasLength(or.w.Commands[src.Reserved-1].Pages, p.From) || p.To.Length != p.From.Length:
			or.fail(checkCopyLength, "node %d copies %d bytes of page %d, more or fewer than its chunk has",
				n.It(), p.To.Length, n.ItsPage(n.Numbered(p.From)))
		case dst.Writers > 0 || dst.Readers > 0 || or.owned(dst):
			or.fail(checkCopyAlone, "node %d copies to page %d for ticket %d, which is another's",
				n.It(), n.ItsPage(p.To.Index), oracle.Ticket(c.Put))
		case p.To.Generation <= dst.Last || p.To.Generation != dst.Generation:
			or.fail(checkCopyGeneration, "node %d copies to page %d in generation %d after %d",
				n.It(), n.ItsPage(p.To.Index), p.To.Generation, dst.Last)
		}
		if or.w.Failure != nil {
			return
		}
		dst.Owner, dst.Origin, dst.Last = c.Put, p.From, p.To.Generation
		src.Readers++
		dst.Writers++
		c.From.Touch(p.From.Index)
		c.To.Touch(p.To.Index)
	}
	or.copiedInTurn(n, c.Put)
	or.filled(n)
}

// owned says whether a page of a host pool is that of a put which has no outcome yet.
func (or *offloadOracle) owned(pg *world.Page) bool {
	return pg.Owner != 0 && !or.w.Commands[pg.Owner-1].Over
}

// copiedInTurn checks that nobody waits longer for host pages.
func (or *offloadOracle) copiedInTurn(n *world.Node, put effects.Ticket) {
	if or.w.Commands[put-1].Copied {
		return // Its first copy was in turn.
	}
	or.judged(checkCopyInTurn)
	for _, t := range or.shortPuts(n) {
		if t == put {
			break
		}
		if or.w.Commands[t-1].Due != 0 {
			or.fail(checkCopyInTurn, "node %d copies chunks of ticket %d while ticket %d waits longer for host pages",
				n.It(), oracle.Ticket(put), oracle.Ticket(t))
			return
		}
	}
	or.w.Commands[put-1].Copied = true
	most := int(cmp.Or(pd.Its(n).Cfg.Tuning.CopiesMax, 4))
	pd.Loaded(&or.w.Result, pd.CopiesOfAPut, len(or.w.Commands[put-1].Pages), most)
}

// shortPuts are those of which nothing was copied, in order.
func (or *offloadOracle) shortPuts(n *world.Node) []effects.Ticket {
	my := or.at(n)
	my.short = slices.DeleteFunc(my.short, func(t effects.Ticket) bool {
		return or.w.Commands[t-1].Over || or.w.Commands[t-1].Copied
	})
	return my.short
}

// filled checks the high-water mark of the host pool: pages count from when they are taken until they are free again
// (S6).
func (or *offloadOracle) filled(n *world.Node) {
	or.judged(checkHostMark)
	if taken, most := or.taken(n), or.w.LentMax(n); taken > most {
		or.fail(checkHostMark, "node %d has taken %d host pages, %d are allowed", n.It(), taken, most)
	}
}

func (or *offloadOracle) taken(n *world.Node) (count int) {
	or.lent = append(or.lent[:0], make([]bool, len(n.Pool.Pages))...)
	for _, g := range n.Pool.Lent {
		if or.w.Standing(n, g) {
			for _, p := range g.Pages {
				if int(p.Index) < len(or.lent) {
					or.lent[p.Index] = true
				}
			}
		}
	}
	for i := range n.Pool.Pages {
		if pg := &n.Pool.Pages[i]; pg.Writers > 0 || or.lent[i] || or.owned(pg) {
			count++
		}
	}
	return count
}

// moving checks half a page as a device moves it: both pages are still the copy's.
func (or *offloadOracle) moving(c *world.Offload, p effects.CopyPair) {
	or.judged(checkMove, checkMoveTo)
	src, dst := &c.From.Pages[p.From.Index], &c.To.Pages[p.To.Index]
	switch {
	case !c.Touching:
		or.fail(checkMove, "a copy of ticket %d touches page %d of node %d after it was settled",
			oracle.Ticket(c.Put), c.Node.ItsPage(c.Node.Numbered(p.From)), c.Node.It())
	case src.Reserved == 0 || src.Last != p.From.Generation || src.Readers == 0:
		or.fail(checkMove, "a copy of ticket %d reads page %d of node %d, which its engine has not handed over",
			oracle.Ticket(c.Put), c.Node.ItsPage(c.Node.Numbered(p.From)), c.Node.It())
	case dst.Last != p.To.Generation:
		or.fail(checkMoveTo, "a copy of ticket %d stores into page %d of node %d in generation %d instead of %d",
			oracle.Ticket(c.Put), c.Node.ItsPage(p.To.Index), c.Node.It(), dst.Last, p.To.Generation)
	}
}

// copySettled ends a copy, as its machine is told so.
func (or *offloadOracle) copySettled(c *world.Offload) {
	c.Touching = false
	for _, p := range c.Pairs {
		c.From.Pages[p.From.Index].Readers--
		c.From.Touch(p.From.Index)
		c.To.Pages[p.To.Index].Writers--
		c.To.Touch(p.To.Index)
	}
}

// lendingCopy checks a page of a host pool as it is lent: it is its put's, and holds its chunk whole.
func (or *offloadOracle) lendingCopy(n *world.Node, g *world.Grant, p effects.Page) {
	or.judged(checkLoanOfCopy, checkLoanCopyLength, checkLoanCopyWhole)
	pg := &n.Pool.Pages[p.Index]
	switch {
	case !or.owned(pg) || !or.w.Commands[pg.Owner-1].Returned:
		or.fail(checkLoanOfCopy, "node %d leases page %d under grant %d before its chunk was copied",
			n.It(), n.ItsPage(p.Index), n.ItsGrant(g.ID))
		return
	case pg.Origin.Length != p.Length:
		or.fail(checkLoanCopyLength, "node %d leases %d bytes of page %d, more or fewer than its chunk has",
			n.It(), p.Length, n.ItsPage(p.Index))
		return
	}
	for part := range n.Pool.PartsOf(p.Length) {
		if s := pg.Stamps[part]; s == 0 || s.Part() != part || s.Key() != pg.Stamps[0].Key() ||
			s.Fill() != pg.Stamps[0].Fill() {
			or.fail(checkLoanCopyWhole, "node %d leases page %d under grant %d, which is not whole",
				n.It(), n.ItsPage(p.Index), n.ItsGrant(g.ID))
			return
		}
	}
	g.Loan.Put = pg.Owner
}

// hostPages checks, after a step, what its machine counts of the host pool, and that no put waits for pages which are
// there.
func (or *offloadOracle) hostPages(n *world.Node, total, free int) {
	or.judged(checkHostFree)
	taken := or.taken(n)
	if total != len(n.Pool.Pages) || free < 0 || free+taken > total {
		or.fail(checkHostFree, "node %d counts %d of %d host pages free while %d are in use", n.It(), free, total, taken)
		return
	}
	if n.Busy {
		return
	}
	for _, t := range or.shortPuts(n) {
		if c := &or.w.Commands[t-1]; c.Due != 0 {
			or.judged(checkHostWaits)
			if total-free+len(c.Pages) <= or.w.LentMax(n) {
				or.fail(checkHostWaits, "node %d lets ticket %d wait for %d host pages although %d of %d are free",
					n.It(), oracle.Ticket(t), len(c.Pages), free, total)
			}
			return
		}
	}
}
