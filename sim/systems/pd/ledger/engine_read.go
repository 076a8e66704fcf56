package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkGotWhole       = oracle.NewCheck("S1", "pages of vanilla senders, delivered by gets")
	checkGotUnwritten   = oracle.NewCheck("S4", "delivered pages without writers")
	checkGotGranted     = oracle.NewCheck("S3", "delivered pages without a grant")
	checkGotGeneration  = oracle.NewCheck("S2", "generations of delivered pages")
	checkReadPageLength = oracle.NewCheck("S21", "lengths of chunks read")
	checkReadPageWhole  = oracle.NewCheck("S1", "parts of chunks read")
	checkReadPageKey    = oracle.NewCheck("S2", "keys of chunks read")
	checkReadPageOrigin = oracle.NewCheck("S23", "origins of chunks read")
)

// engineReadOracle judges the pages that engines get to read: the state of the pages when a Get delivers the pages, and
// the content.
type engineReadOracle struct{ oracleBase }

func (*engineReadOracle) subscribe(l *oracle.Subscriptions[engineReadOracle]) {
	oracle.On(l, func(o *engineReadOracle, _ *oracle.Call, e pd.GetOutcome) {
		o.verifyGotPages(e.Node, e.Effect)
	})
	oracle.On(l, func(o *engineReadOracle, _ *oracle.Call, e pd.GetOfDomain) {
		if e.Effect != nil {
			o.verifyGotPages(e.Node, e.Effect)
		}
	})
	oracle.On(l, func(o *engineReadOracle, _ *oracle.Call, e pd.PagesRead) { o.verifyContent(e.Node, e.Job, e.Pages) })
}

// verifyGotPages checks the pages that a Get delivered, and pins the pages as read by the engine.
func (or *engineReadOracle) verifyGotPages(n *world.Node, e *effects.Deliver) {
	for _, p := range e.Pages {
		pg := &n.Pool.Pages[p.Index]
		bearer := n.Grants[pg.Granted].IsBearer()
		if pg.TrustedGrant == 0 {
			or.countJudged(checkGotWhole, checkGotUnwritten, checkGotGranted, checkGotGeneration)
		} else {
			or.countVoid(checkGotWhole)
		}
		switch {
		case pg.TrustedGrant != 0:
			pg.Pins++ // Exempt from S1, by name; the grant stays in force beside the readers.
			n.Pool.UpdateInUse(p.Index)
			continue
		case bearer && or.w.Conditions.Leased:
			or.fail(checkGotWhole, "node %d delivers page %d of a vanilla sender, which was not committed",
				n.AsSubject(), n.PageSubject(p.Index))
		case pg.Writers > 0:
			or.fail(checkGotUnwritten, "node %d delivers page %d while a transfer may still store into it",
				n.AsSubject(), n.PageSubject(p.Index))
		case !or.w.Conditions.Leased && pg.Granted != 0:
			or.fail(checkGotGranted, "node %d delivers page %d while it is granted under %d",
				n.AsSubject(), n.PageSubject(p.Index), n.GrantSubject(pg.Granted))
		case p.Generation != pg.LastGeneration:
			or.fail(checkGotGeneration, "node %d delivers page %d in generation %d, and the page has generation %d",
				n.AsSubject(), n.PageSubject(p.Index), p.Generation, pg.LastGeneration)
		}
		pg.Granted = 0 // A leased grant ended by commit.
		pg.Pins++
		n.Pool.UpdateInUse(p.Index)
	}
}

// verifyContent reads the pages that a Get delivered, as the engine would, and checks their content.
func (or *engineReadOracle) verifyContent(n *world.Node, j *pd.Job, pages []effects.Page) {
	or.verifyContentFrom(n, j, 0, pages)
}

// verifyContentFrom checks the content of pages, of which the first page holds the chunk number first of the job.
func (or *engineReadOracle) verifyContentFrom(n *world.Node, j *pd.Job, first int, pages []effects.Page) {
	for i, p := range pages {
		i += first
		covered := n.Pool.PartCount(p.Length)
		or.countJudged(checkReadPageLength)
		if want := int(j.TokensOf(i)); covered != want && !or.isLengthAmbiguous(j, i) {
			or.fail(checkReadPageLength, "chunk %d of request %s has %d parts at node %d instead of %d",
				i, oracle.Request(j.Name), covered, n.AsSubject(), want)
			return
		}
		if or.oracles().plainSenders.isExempt(n, p.Index) {
			or.countVoid(checkReadPageWhole)
			continue
		}
		pg := &n.Pool.Pages[p.Index]
		if pg.WasFlippedIn(p.Generation) { // The chunk was changed here, after it had arrived.
			or.countVoid(checkReadPageWhole)
			continue
		}
		or.countJudged(checkReadPageWhole, checkReadPageKey, checkReadPageOrigin)
		for part := range covered {
			s := pg.Stamps[part]
			switch {
			case s == 0 || s.Part() != part:
				or.fail(checkReadPageWhole, "chunk %d of request %s at node %d: part %d of page %d was never stored",
					i, oracle.Request(j.Name), n.AsSubject(), part, n.PageSubject(p.Index))
			case s.Key() != j.KeyNumbers[i] && pg.Stamps[0].Key() != j.KeyNumbers[i]:
				or.fail(checkReadPageKey, "chunk %d of request %s at node %d: page %d holds key %d instead of %d",
					i, oracle.Request(j.Name), n.AsSubject(), n.PageSubject(p.Index), oracle.Key(s.Key()), j.KeyNumbers[i])
			case s.Key() != j.KeyNumbers[i]:
				or.fail(checkReadPageWhole, "chunk %d of request %s at node %d: page %d is torn between keys %d and %d",
					i, oracle.Request(j.Name), n.AsSubject(), n.PageSubject(p.Index), oracle.Key(j.KeyNumbers[i]), s.Key())
			case s.Fill() != pg.Stamps[0].Fill():
				or.fail(checkReadPageOrigin, "chunk %d of request %s at node %d: page %d comes from two origins",
					i, oracle.Request(j.Name), n.AsSubject(), n.PageSubject(p.Index))
			default:
				continue
			}
			return
		}
	}
}

// isLengthAmbiguous reports whether the key of chunk i occurs more than once in the job. The chunk then has the length
// of either the first or the last occurrence.
func (or *engineReadOracle) isLengthAmbiguous(j *pd.Job, i int) bool {
	for k, id := range j.KeyNumbers {
		if k != i && id == j.KeyNumbers[i] {
			return true
		}
	}
	return false
}
