package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of chunks that travel in the allocation request: the source pages and the target pages of the copies.

var (
	checkCarried    = oracle.NewCheck("S4", "pages that a message carries")
	checkTaken      = oracle.NewCheck("S4", "pages that messages are copied to")
	checkTakenKnown = oracle.NewCheck("S12", "lives of pages that messages are copied to")
	checkTakenOnce  = oracle.NewCheck("S23", "operations whose chunks come with their question")
)

// carried checks that the pages whose content travels in a message are reserved by an engine, and that no transfer
// stores into these pages.
func (or *pagesOracle) carried(n *world.Node, e *effects.Send) {
	or.judged(checkCarried)
	for _, p := range e.Carries {
		switch pg := &n.Pool.Pages[p.Index]; {
		case pg.Reserved == 0 && or.w.Script == nil:
			or.fail(checkCarried, "node %d sends page %d with a message, which no engine has reserved", n.It(), n.ItsPage(p.Index))
		case pg.Writers > 0:
			or.fail(checkCarried, "node %d sends page %d with a message while a transfer may store into it", n.It(),
				n.ItsPage(p.Index))
		}
	}
}

// takes checks that a page into which a chunk of a message is copied has no user.
func (or *pagesOracle) takes(n *world.Node, e *effects.Store) {
	or.judged(checkTaken, checkTakenKnown)
	pg := &n.Pool.Pages[e.Page.Index]
	if id, page := or.all().loans.lentTo(n, []effects.Page{e.Page}); id != 0 {
		or.fail(checkTaken, "node %d copies a message to page %d while grant %d lets it be read", n.It(), n.ItsPage(page),
			n.ItsGrant(id))
		return
	}
	switch {
	case pg.Writers > 0:
		or.fail(checkTaken, "node %d copies a message to page %d while a transfer may still store into it", n.It(),
			n.ItsPage(e.Page.Index))
	case pg.Granted != 0 && !or.all().bearer.lapsed(n, pg.Granted):
		or.fail(checkTaken, "node %d copies a message to page %d, which is granted under %d", n.It(),
			n.ItsPage(e.Page.Index), n.ItsGrant(pg.Granted))
	case pg.Pins > 0 || pg.Scatters > 0:
		or.fail(checkTaken, "node %d copies a message to page %d while the engine reads it", n.It(), n.ItsPage(e.Page.Index))
	case pg.Reserved != 0 && or.w.Script == nil:
		or.fail(checkTaken, "node %d copies a message to page %d while its engine has it for ticket %d", n.It(),
			n.ItsPage(e.Page.Index), oracle.Ticket(pg.Reserved))
	case pg.Generation != e.Page.Generation:
		or.fail(checkTakenKnown, "node %d copies a message to page %d in generation %d, and peers see %d", n.It(),
			n.ItsPage(e.Page.Index), e.Page.Generation, pg.Generation)
	case e.Page.Generation <= pg.Last:
		or.fail(checkTaken, "node %d copies a message to page %d with generation %d after %d", n.It(),
			n.ItsPage(e.Page.Index), e.Page.Generation, pg.Last)
	}
	my := or.all().queue.at(n)
	my.took = append(my.took, e.Page)
	pg.Granted, pg.Since, pg.Last, pg.Trusted, pg.Fill = 0, e.Page.Generation, e.Page.Generation, 0, world.FillNone
	n.Pool.Touch(e.Page.Index)
}

// takenOperation records an operation whose chunks were taken from the allocation request.
type takenOperation struct {
	operation
	at effects.Time
}

// takes records that the chunks of an operation were taken from the request. It fails if the same operation of the peer
// was taken before. While the peer has a row, the machine keeps a record of the peer's last such operation, so that a
// retry gets the reply of the first attempt (S23).
func (or *queueOracle) takes(n *world.Node, w *waiter) {
	if w.operation == 0 {
		return
	}
	my, now, cfg := or.at(n), or.w.Clock(n), &pd.Its(n).Cfg
	i := slices.IndexFunc(my.taken, func(x takenOperation) bool { return x.peer == w.peer })
	if i < 0 {
		i = len(my.taken)
		my.taken = append(my.taken, takenOperation{operation{peer: w.peer}, now})
	}
	x := &my.taken[i]
	switch {
	case !or.all().places.known(n, w.peer):
		or.void(checkTakenOnce)
	case x.number == w.operation && now <= x.at.Add(min(cfg.ClaimTTL, cmp.Or(cfg.Tuning.SpokeFor, 60*effects.Second))):
		or.fail(checkTakenOnce, "node %d takes the chunks of request %d again, whose operation it took %v before", n.It(),
			oracle.Message(w.request), now.Sub(x.at))
	default:
		or.judged(checkTakenOnce)
	}
	x.number, x.at = w.operation, now
}
