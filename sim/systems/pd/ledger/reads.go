package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkGotWhole       = oracle.NewCheck("S1", "pages of vanilla senders got")
	checkGotStill       = oracle.NewCheck("S4", "got pages that are stored into")
	checkGotGranted     = oracle.NewCheck("S3", "got pages that are granted")
	checkGotGeneration  = oracle.NewCheck("S2", "generations of got pages")
	checkReadPageLength = oracle.NewCheck("S21", "lengths of chunks read")
	checkReadPageWhole  = oracle.NewCheck("S1", "parts of chunks read")
	checkReadPageKey    = oracle.NewCheck("S2", "keys of chunks read")
	checkReadPageOrigin = oracle.NewCheck("S23", "origins of chunks read")
)

// readsOracle judges the pages that engines get to read: the state of the pages when a Get delivers the pages, and the
// content.
type readsOracle struct{ judge }

func (*readsOracle) listen(l *oracle.Listen[readsOracle]) {
	oracle.On(l, func(o *readsOracle, _ *oracle.Call, e pd.Got) { o.got(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *readsOracle, _ *oracle.Call, e pd.Read) { o.verify(e.Node, e.Job, e.Pages) })
}

// got checks the pages that a Get delivered, and pins the pages as read by the engine.
func (or *readsOracle) got(n *world.Node, e *effects.Deliver, c *pd.Command) {
	for _, p := range e.Pages {
		pg := &n.Pool.Pages[p.Index]
		bearer := n.Grants[pg.Granted].Bearer()
		if pg.Trusted == 0 {
			or.judged(checkGotWhole, checkGotStill, checkGotGranted, checkGotGeneration)
		} else {
			or.void(checkGotWhole)
		}
		switch {
		case pg.Trusted != 0:
			pg.Pins++ // Exempt from S1, by name; the grant stays in force beside the readers.
			n.Pool.Touch(p.Index)
			continue
		case bearer && or.w.Setting.Leased:
			or.fail(checkGotWhole, "node %d delivers page %d of a vanilla sender, of which nobody said that it is whole",
				n.It(), n.ItsPage(p.Index))
		case pg.Writers > 0:
			or.fail(checkGotStill, "node %d delivers page %d while a transfer may still store into it",
				n.It(), n.ItsPage(p.Index))
		case !or.w.Setting.Leased && pg.Granted != 0:
			or.fail(checkGotGranted, "node %d delivers page %d while it is granted under %d",
				n.It(), n.ItsPage(p.Index), n.ItsGrant(pg.Granted))
		case p.Generation != pg.Last:
			or.fail(checkGotGeneration, "node %d delivers page %d of generation %d, it is in %d",
				n.It(), n.ItsPage(p.Index), p.Generation, pg.Last)
		}
		pg.Granted = 0 // A leased grant ended by commit.
		pg.Pins++
		n.Pool.Touch(p.Index)
	}
}

// verify reads the pages that a Get delivered, as the engine would, and checks their content.
func (or *readsOracle) verify(n *world.Node, j *pd.Job, pages []effects.Page) {
	or.verifyFrom(n, j, 0, pages)
}

// verifyFrom checks the content of pages, of which the first page holds the chunk number first of the job.
func (or *readsOracle) verifyFrom(n *world.Node, j *pd.Job, first int, pages []effects.Page) {
	for i, p := range pages {
		i += first
		covered := n.Pool.PartsOf(p.Length)
		or.judged(checkReadPageLength)
		if want := int(j.TokensOf(i)); covered != want && !or.lengthFree(j, i) {
			or.fail(checkReadPageLength, "chunk %d of request %s has %d parts at node %d instead of %d",
				i, oracle.Request(j.Name), covered, n.It(), want)
			return
		}
		if or.all().bearer.exempt(n, p.Index) {
			or.void(checkReadPageWhole)
			continue
		}
		or.judged(checkReadPageWhole, checkReadPageKey, checkReadPageOrigin)
		pg := &n.Pool.Pages[p.Index]
		for part := range covered {
			s := pg.Stamps[part]
			switch {
			case s == 0 || s.Part() != part:
				or.fail(checkReadPageWhole, "chunk %d of request %s at node %d: part %d of page %d was never stored",
					i, oracle.Request(j.Name), n.It(), part, n.ItsPage(p.Index))
			case s.Key() != j.Ids[i] && pg.Stamps[0].Key() != j.Ids[i]:
				or.fail(checkReadPageKey, "chunk %d of request %s at node %d: page %d holds key %d instead of %d",
					i, oracle.Request(j.Name), n.It(), n.ItsPage(p.Index), oracle.Key(s.Key()), j.Ids[i])
			case s.Key() != j.Ids[i]:
				or.fail(checkReadPageWhole, "chunk %d of request %s at node %d: page %d is torn between keys %d and %d",
					i, oracle.Request(j.Name), n.It(), n.ItsPage(p.Index), oracle.Key(j.Ids[i]), s.Key())
			case s.Fill() != pg.Stamps[0].Fill():
				or.fail(checkReadPageOrigin, "chunk %d of request %s at node %d: page %d comes from two origins",
					i, oracle.Request(j.Name), n.It(), n.ItsPage(p.Index))
			default:
				continue
			}
			return
		}
	}
}

// lengthFree reports whether the key of chunk i occurs more than once in the job. The chunk then has the length of
// either the first or the last occurrence.
func (or *readsOracle) lengthFree(j *pd.Job, i int) bool {
	for k, id := range j.Ids {
		if k != i && id == j.Ids[i] {
			return true
		}
	}
	return false
}
