package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A node with an arena copies chunks into the arena in order to lease the copies to peers. From the Copy effect until
// the copy has settled, the source page and the target page belong to the copy. Then the page in the arena belongs to
// the reader of the chunk.

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkArenaFrom     = oracle.NewCheck("S2", "pages copied for peers")
	checkArenaTo       = oracle.NewCheck("S4", "arena pages copied to")
	checkArenaMove     = oracle.NewCheck("S4", "halves of pages moved for peers")
	checkArenaShare    = oracle.NewCheck("S18", "shares of an arena")
	checkArenaServes   = oracle.NewCheck("S18", "questions that chunks are copied for")
	checkArenaLent     = oracle.NewCheck("S4", "leased pages of an arena")
	checkArenaWhole    = oracle.NewCheck("S1", "content of leased arena pages")
	checkArenaPinned   = oracle.NewCheck("S4", "chunks given up, of copies")
	checkArenaUnpinned = oracle.NewCheck("L2", "pins of what was copied")
	checkArenaAgain    = oracle.NewCheck("L8", "answers to questions that are asked again")
	checkArenaFree     = oracle.NewCheck("S5", "free arena pages")
)

// arenaOracle judges the copies that a node with an arena makes for peers.
type arenaOracle struct {
	judge
	perLife[arenaLife]
}

func (*arenaOracle) listen(l *oracle.Listen[arenaOracle]) {
	oracle.On(l, func(o *arenaOracle, _ *oracle.Call, e world.Copying) { o.copying(e.Node, e.Copy) })
	oracle.On(l, func(o *arenaOracle, _ *oracle.Call, e world.Moving) { o.moving(e.Copy, e.Pair) })
	oracle.On(l, func(o *arenaOracle, _ *oracle.Call, e world.CopySettled) { o.copySettled(e.Copy) })
	oracle.On(l, func(o *arenaOracle, _ *oracle.Call, e counted) {
		if e.node.Arena > 0 {
			o.afterStep(e.node, e.stats)
		}
	})
}

// arenaLife records the lookups to which an incarnation of a node has not replied. The node replies when the chunks are
// copied.
type arenaLife struct {
	asked  []askedCopies `snap:"skip"`
	former uint64        `snap:"skip"` // a lookup that got a reply in this step; a retry may arrive in the same step
}

// askedCopies is a lookup that waits until the chunks are copied, with the message.
type askedCopies struct {
	question
	body []byte
}

// its returns the record that lookups of all kinds have in common.
func (x *askedCopies) its() *question { return &x.question }

func (s *arenaLife) startReply() { *s = arenaLife{asked: s.asked[:0]} }

// heard records a lookup whose reply may come later.
func (or *arenaOracle) heard(n *world.Node, request uint64, body []byte) {
	my := or.at(n)
	my.asked = append(my.asked, askedCopies{questionOf(n, request, &or.all().shared.get), slices.Clone(body)})
}

// answered returns the lookup that a reply belongs to, for the oracle that judges the reply.
func (or *arenaOracle) answered(n *world.Node, request uint64, answer []byte) (body []byte) {
	my := or.at(n)
	if len(my.asked) > 0 && my.asked[len(my.asked)-1].request == request && !introduces(answer) {
		my.asked = moot(&or.judge, my.asked, (*askedCopies).its)
	}
	if i := slices.IndexFunc(my.asked, func(x askedCopies) bool { return x.request == request }); i >= 0 {
		if x := &my.asked[i]; my.asked[len(my.asked)-1].again(&x.question) {
			my.former = request
		}
		body = my.asked[i].body
		my.asked = slices.Delete(my.asked, i, i+1)
	}
	if or.judged(checkArenaAgain); body == nil && or.w.Requests[request-1].Moot {
		or.fail(checkArenaAgain, "node %d answers message %d, which was asked again since", n.It(), oracle.Message(request))
	}
	return body
}

// superseded removes a lookup that was asked again in this step. Only the retry gets a reply.
func (or *arenaOracle) superseded(n *world.Node) {
	my := or.at(n)
	my.asked = newest(&or.judge, n, my.asked, (*askedCopies).its)
	former := my.former
	if my.former = 0; former == 0 {
		return
	}
	if or.judged(checkArenaAgain); len(my.asked) > 0 && my.asked[len(my.asked)-1].request > former {
		or.fail(checkArenaAgain, "node %d answers message %d, which is asked again in this step", n.It(),
			oracle.Message(former))
	}
}

// copying checks a Copy effect when the machine emits the effect, in the step that handles the lookup for which the
// chunks are copied.
func (or *arenaOracle) copying(n *world.Node, c *world.Copy) {
	q := &or.all().shared.get.Ext
	c.Peer, c.Operation = effects.Incarnation(q.Incarnation), q.Operation
	for _, p := range c.Pairs {
		or.judged(checkArenaFrom, checkArenaTo)
		src, dst := &n.Pool.Pages[p.From.Index], &n.Pool.Pages[p.To.Index]
		switch {
		case n.InArena(p.From.Index) || src.Last != p.From.Generation || src.Writers > 0 || src.Granted != 0 &&
			!or.all().bearer.lapsed(n, src.Granted) || !whole(n.Pool, src, p.From.Length):
			or.fail(checkArenaFrom, "node %d copies page %d for a peer, which has no chunk that is ready", n.It(),
				n.ItsPage(p.From.Index))
		case !n.InArena(p.To.Index) || dst.Writers > 0 || dst.Readers > 0 || p.To.Generation <= dst.Last ||
			p.To.Generation != dst.Generation || p.To.Length != p.From.Length:
			or.fail(checkArenaTo, "node %d copies to page %d for a peer, which is not free, or no page of its arena", n.It(),
				n.ItsPage(p.To.Index))
		}
		if id, page := or.all().loans.lentTo(n, []effects.Page{p.To}); id != 0 && or.w.Failure == nil {
			or.fail(checkArenaTo, "node %d copies to page %d while grant %d lets it be read", n.It(), n.ItsPage(page),
				n.ItsGrant(id))
		}
		if or.w.Failure != nil {
			return
		}
		dst.Last, dst.By = p.To.Generation, c.Peer
		src.Readers++
		dst.Writers++
		n.Pool.Touch(p.From.Index)
		n.Pool.Touch(p.To.Index)
	}
	or.shares(n, c.Peer)
}

// whole reports whether the first length bytes of a page come from a single fill of a single chunk.
func whole(pool *world.Pool, pg *world.Page, length uint32) bool {
	for part := range pool.PartsOf(length) {
		if s := pg.Stamps[part]; s == 0 || s.Part() != part || s.Key() != pg.Stamps[0].Key() ||
			s.Fill() != pg.Stamps[0].Fill() {
			return false
		}
	}
	return true
}

// shares checks a peer's share of the arena and of the lookups in service: the peer must leave free at least as much as
// the peer uses.
func (or *arenaOracle) shares(n *world.Node, peer effects.Incarnation) {
	or.judged(checkArenaShare, checkArenaServes)
	of, all := or.taken(n, peer)
	if most := n.Arena; of > most-all+1 {
		or.fail(checkArenaShare, "node %d has %d of %d arena pages for one peer, and %d for all", n.It(), of, most, all)
		return
	}
	type service struct {
		peer      effects.Incarnation
		operation uint64
	}
	served, its, pinned := map[service]bool{}, 0, 0
	for _, c := range or.w.Copies {
		if c.Pool != n.Pool || !c.Touching {
			continue
		}
		if pinned += len(c.Pairs); served[service{c.Peer, c.Operation}] {
			continue
		}
		served[service{c.Peer, c.Operation}] = true
		if c.Peer == peer {
			its++
		}
	}
	if most := int(pd.Its(n).Cfg.PushesMax); its > most-len(served)+1 {
		or.fail(checkArenaServes, "node %d copies for %d questions of one peer and for %d of all, of at most %d", n.It(), its,
			len(served), most)
		return
	}
	cfg := &pd.Its(n).Cfg // Pages pinned until copied. The copies are of the arena, which is bounded above.
	if or.judged(checkSharedLent); pinned > int(cfg.Share(cfg.LoanSharePct)) {
		or.fail(checkSharedLent, "node %d copies %d pages for peers, of a pool of %d, of which they may have %d%%", n.It(),
			pinned, n.Engines(), cfg.LoanSharePct)
	}
}

// taken returns how many pages of the arena a peer has, and how many all peers have: pages that are stored into, or
// that may be read.
func (or *arenaOracle) taken(n *world.Node, peer effects.Incarnation) (of, all int) {
	count := func(pg *world.Page) {
		if all++; pg.By == peer {
			of++
		}
	}
	for i := n.Engines(); i < n.Engines()+n.Arena; i++ {
		if pg := &n.Pool.Pages[i]; pg.Writers > 0 {
			count(pg)
		}
	}
	for _, g := range n.Pool.Lent {
		for _, p := range g.Pages {
			if n.InArena(p.Index) && or.w.Standing(n, g) {
				count(&n.Pool.Pages[p.Index])
			}
		}
	}
	return of, all
}

// moving checks half a page when a device copies the half page: both pages must still belong to the copy.
func (or *arenaOracle) moving(c *world.Copy, p effects.CopyPair) {
	or.judged(checkArenaMove)
	n := c.Node
	src, dst := &c.Pool.Pages[p.From.Index], &c.Pool.Pages[p.To.Index]
	id, _ := or.all().loans.lentTo(n, []effects.Page{p.To})
	switch {
	case !c.Touching:
		or.fail(checkArenaMove, "a copy touches page %d of node %d after it was settled", n.ItsPage(p.From.Index), n.It())
	case src.Last != p.From.Generation || src.Readers == 0:
		or.fail(checkArenaMove, "a copy reads page %d of node %d, which is another's by now", n.ItsPage(p.From.Index), n.It())
	case dst.Last != p.To.Generation || id != 0:
		or.fail(checkArenaMove, "a copy stores into page %d of node %d, which grant %d lets be read, or which is another's",
			n.ItsPage(p.To.Index), n.It(), n.ItsGrant(id))
	}
}

// copySettled ends a copy when its machine is notified that the copy is settled.
func (or *arenaOracle) copySettled(c *world.Copy) {
	c.Touching = false
	for _, p := range c.Pairs {
		c.Pool.Pages[p.From.Index].Readers--
		c.Pool.Touch(p.From.Index)
		c.Pool.Pages[p.To.Index].Writers--
		c.Pool.Touch(p.To.Index)
	}
}

// lending checks a page that a node with an arena leases: the page must be in the arena and hold a whole chunk.
func (or *arenaOracle) lending(n *world.Node, g *world.Grant, p effects.Page) {
	or.judged(checkArenaLent, checkArenaWhole)
	switch pg := &n.Pool.Pages[p.Index]; {
	case !n.InArena(p.Index):
		or.fail(checkArenaLent, "node %d leases page %d under grant %d, which is not of its arena", n.It(),
			n.ItsPage(p.Index), n.ItsGrant(g.ID))
	case !whole(n.Pool, pg, p.Length):
		or.fail(checkArenaWhole, "node %d leases page %d under grant %d, to which no chunk was copied whole", n.It(),
			n.ItsPage(p.Index), n.ItsGrant(g.ID))
	}
}

// evicted checks that no copy of an evicted chunk is in flight.
func (or *arenaOracle) evicted(n *world.Node, k uint32) {
	or.judged(checkArenaPinned)
	for _, c := range or.w.Copies {
		if c.Pool != n.Pool || !c.Touching {
			continue
		}
		for _, p := range c.Pairs {
			if src := &n.Pool.Pages[p.From.Index]; src.Last == p.From.Generation && src.Stamps[0].Key() == k {
				or.fail(checkArenaPinned, "node %d gives up chunk %d while it is copied from page %d", n.It(), oracle.Key(k),
					n.ItsPage(p.From.Index))
				return
			}
		}
	}
}

// afterStep compares the machine's page counts of the arena with what drivers saw. Pages are pinned for peers only
// while they are copied or written.
func (or *arenaOracle) afterStep(n *world.Node, s *rank.Stats) {
	or.superseded(n)
	or.judged(checkArenaFree)
	if _, taken := or.taken(n, effects.Incarnation{}); s.ArenaTotal != n.Arena || s.ArenaFree+taken > s.ArenaTotal {
		or.fail(checkArenaFree, "node %d counts %d of %d arena pages free while %d are in use", n.It(), s.ArenaFree,
			s.ArenaTotal, taken)
		return
	}
	for _, c := range or.w.Copies {
		if c.Pool == n.Pool && c.Touching {
			return
		}
	}
	if len(or.all().shared.at(n).came) > 0 {
		return
	}
	if or.judged(checkArenaUnpinned); s.Pinned > 0 {
		or.fail(checkArenaUnpinned, "node %d keeps %d pages for peers, and neither copies nor writes any", n.It(), s.Pinned)
	}
}
