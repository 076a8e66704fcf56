package sim

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
)

// What is judged here.
var (
	checkGotWhole       = oracle.NewCheck("S1", "pages of plain senders got")
	checkGotStill       = oracle.NewCheck("S4", "got pages that are stored into")
	checkGotGranted     = oracle.NewCheck("S3", "got pages that are granted")
	checkGotGeneration  = oracle.NewCheck("S2", "generations of got pages")
	checkReadPageLength = oracle.NewCheck("S21", "lengths of chunks read")
	checkReadPageWhole  = oracle.NewCheck("S1", "parts of chunks read")
	checkReadPageKey    = oracle.NewCheck("S2", "keys of chunks read")
	checkReadPageOrigin = oracle.NewCheck("S23", "origins of chunks read")
)

// readsOracle judges what engines are given to read.
type readsOracle struct{ judge }

// got pins what a Get delivered.
func (or *readsOracle) got(n *node, e *effects.Deliver, c *command) {
	for _, p := range e.Pages {
		pg := &n.pool.pages[p.Index]
		bearer := n.grants[pg.granted].bearer()
		if pg.trusted == 0 {
			or.judged(checkGotWhole, checkGotStill, checkGotGranted, checkGotGeneration)
		} else {
			or.void(checkGotWhole)
		}
		switch {
		case pg.trusted != 0:
			pg.pins++ // Exempt from S1, by name; its grant stands beside its readers.
			n.pool.touch(p.Index)
			continue
		case bearer && or.w.plan.Leased:
			or.fail(checkGotWhole, "node %d delivers page %d of a plain sender, of which nobody said that it is whole",
				n.it(), n.itsPage(p.Index))
		case pg.writers > 0:
			or.fail(checkGotStill, "node %d delivers page %d while a transfer may still store into it",
				n.it(), n.itsPage(p.Index))
		case !or.w.plan.Leased && pg.granted != 0:
			or.fail(checkGotGranted, "node %d delivers page %d while it is granted under %d",
				n.it(), n.itsPage(p.Index), n.itsGrant(pg.granted))
		case p.Generation != pg.last:
			or.fail(checkGotGeneration, "node %d delivers page %d of generation %d, it is in %d",
				n.it(), n.itsPage(p.Index), p.Generation, pg.last)
		}
		pg.granted = 0 // A leased grant ended by commit.
		pg.pins++
		n.pool.touch(p.Index)
	}
}

// verify reads the pages that a Get delivered, as the engine would.
func (or *readsOracle) verify(n *node, j *job, pages []effects.Page) { or.verifyFrom(n, j, 0, pages) }

// verifyFrom reads pages whose first holds chunk first of the job.
func (or *readsOracle) verifyFrom(n *node, j *job, first int, pages []effects.Page) {
	for i, p := range pages {
		i += first
		covered := n.pool.partsOf(p.Length)
		or.judged(checkReadPageLength)
		if want := int(j.tokensOf(i)); covered != want && !or.lengthFree(j, i) {
			or.fail(checkReadPageLength, "chunk %d of request %s has %d parts at node %d instead of %d",
				i, oracle.Request(j.name), covered, n.it(), want)
			return
		}
		if or.all().bearer.exempt(n, p.Index) {
			or.void(checkReadPageWhole)
			continue
		}
		or.judged(checkReadPageWhole, checkReadPageKey, checkReadPageOrigin)
		pg := &n.pool.pages[p.Index]
		for part := range covered {
			s := pg.stamps[part]
			switch {
			case s == 0 || s.part() != part:
				or.fail(checkReadPageWhole, "chunk %d of request %s at node %d: part %d of page %d was never stored",
					i, oracle.Request(j.name), n.it(), part, n.itsPage(p.Index))
			case s.key() != j.ids[i] && pg.stamps[0].key() != j.ids[i]:
				or.fail(checkReadPageKey, "chunk %d of request %s at node %d: page %d holds key %d instead of %d",
					i, oracle.Request(j.name), n.it(), n.itsPage(p.Index), oracle.Key(s.key()), j.ids[i])
			case s.key() != j.ids[i]:
				or.fail(checkReadPageWhole, "chunk %d of request %s at node %d: page %d is torn between keys %d and %d",
					i, oracle.Request(j.name), n.it(), n.itsPage(p.Index), oracle.Key(j.ids[i]), s.key())
			case s.fill() != pg.stamps[0].fill():
				or.fail(checkReadPageOrigin, "chunk %d of request %s at node %d: page %d comes from two origins",
					i, oracle.Request(j.name), n.it(), n.itsPage(p.Index))
			default:
				continue
			}
			return
		}
	}
}

// lengthFree: a key that comes twice in a job has the length of its first place or its last.
func (or *readsOracle) lengthFree(j *job, i int) bool {
	for k, id := range j.ids {
		if k != i && id == j.ids[i] {
			return true
		}
	}
	return false
}
