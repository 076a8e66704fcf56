package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The checks of this file, each with the property of docs/safety.md that the check belongs to.
var (
	checkLapseTime   = oracle.NewCheck("S20", "times of lapses")
	checkMissingCode = oracle.NewCheck("S20", "gets of lapsed chunks")
)

// lapseOracle judges how long chunks are kept, and what machines report when that time is over (S20).
type lapseOracle struct {
	oracleBase
	perIncarnation[lapseState]
}

func (*lapseOracle) subscribe(l *oracle.Subscriptions[lapseOracle]) {
	oracle.On(l, func(o *lapseOracle, _ *oracle.Call, e pd.GetOutcome) { o.verifyMissing(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *lapseOracle, _ *oracle.Call, e world.FactObserved) {
		if e.Effect.Fact == effects.FactLapsed {
			o.verifyLapse(e.Node, e.Effect)
		}
	})
}

// lapseState records, by chunk, what the ledger knows of the expiry of chunks in one incarnation of a node.
type lapseState struct {
	wholeAt     map[uint32]int64 // when the chunk was first whole
	foreignAt   map[uint64]int64 // the same by hash, for chunks of strangers
	reportedAt  map[uint32]int64 // when the chunk was last reported as lapsed
	reportCount uint32           // the number of lapses that were reported
}

func (q *lapseState) clearForReuse() {
	*q = lapseState{wholeAt: world.RecycleMap(q.wholeAt), foreignAt: world.RecycleMap(q.foreignAt), reportedAt: world.RecycleMap(q.reportedAt)}
}

// recordWhole records that a chunk is whole in this incarnation.
func (q *lapseState) recordWhole(k uint32, now int64) {
	if q.wholeAt == nil {
		q.wholeAt = map[uint32]int64{}
	}
	if _, ok := q.wholeAt[k]; !ok {
		q.wholeAt[k] = now
	}
}

// recordForeign records a chunk that is no chunk of a job: it has a key that no job has, from a stranger that is trusted
// to have written the chunk (trust_uncommitted), or it is of a stranger of another trust domain.
func (q *lapseState) recordForeign(hash uint64, now int64) {
	if q.foreignAt == nil {
		q.foreignAt = map[uint64]int64{}
	}
	if _, ok := q.foreignAt[hash]; !ok {
		q.foreignAt[hash] = now
	}
}

// verifyLapse checks a machine's report that a chunk was kept for as long as was promised. Nothing is promised before
// the chunk is whole, so the report comes no earlier than ClaimTTL after that, by the machine's own clock.
func (or *lapseOracle) verifyLapse(n *world.Node, e *effects.Observe) {
	or.countJudged(checkLapseTime)
	q := or.stateOf(n)
	k, ok := or.facts().keyOfHash(n, e.ID)
	if !ok {
		if since, ok := q.foreignAt[e.ID]; !ok || n.ReadingAt(or.w.Now).Sub(n.ReadingAt(since)) < pd.InfoOf(n).Cfg.ClaimTTL {
			or.fail(checkLapseTime, "node %d reports a lapse of a chunk that was never put", n.AsSubject())
		}
		return
	}
	if q.reportedAt == nil {
		q.reportedAt = map[uint32]int64{}
	}
	q.reportedAt[k], q.reportCount = or.w.Now, q.reportCount+e.Count
	since, ok := q.wholeAt[k]
	if !ok || n.ReadingAt(or.w.Now).Sub(n.ReadingAt(since)) < pd.InfoOf(n).Cfg.ClaimTTL {
		or.fail(checkLapseTime, "node %d reports that chunk %d lapsed before the chunk was kept for %d ns",
			n.AsSubject(), k, pd.InfoOf(n).Cfg.ClaimTTL)
	}
}

// verifyMissing checks the code with which a Get reports the first missing chunk. The code is Lapsed if and only if the
// chunk was kept for the whole promised time without being read. Between the earliest and the latest possible end of
// the promise, either code is accepted, because only the machine knows when the promise began.
func (or *lapseOracle) verifyMissing(n *world.Node, e *effects.Deliver, c *pd.Command) {
	j := &or.w.Jobs[c.Job]
	if j.KeysIn(e.Hits) >= len(j.Keys) {
		return
	}
	k := j.KeyNumbers[j.KeysIn(e.Hits)]
	q := or.stateOf(n)
	reportedAt, ok := q.reportedAt[k]
	if e.Code == effects.Lapsed || isUnknownCode(e.Code) && c.Kind == plan.CommandGet {
		or.countJudged(checkMissingCode)
	}
	switch {
	case e.Code == effects.Lapsed && (!ok || n.ReadingAt(or.w.Now).Sub(n.ReadingAt(reportedAt)) > pd.InfoOf(n).Cfg.ClaimTTL):
		or.fail(checkMissingCode, "node %d ends ticket %d (%s) as lapsed, and did not report a lapse of chunk %d, or too long ago",
			n.AsSubject(), oracle.Ticket(e.Ticket), c.Kind, k)
	case isUnknownCode(e.Code) && c.Kind == plan.CommandGet && or.mustReportLapse(n, c.Job, j.KeysIn(e.Hits)):
		or.fail(checkMissingCode,
			"node %d ends ticket %d (get) as %s although chunk %d was kept for request %q until it lapsed",
			n.AsSubject(), oracle.Ticket(e.Ticket), e.Code, k, oracle.Request(j.Name))
	}
}

// mustReportLapse reports whether a chunk was certainly kept for the request until the promised time was over, and the
// machine certainly still has a record of the lapse.
func (or *lapseOracle) mustReportLapse(n *world.Node, job, chunk int) bool {
	j := &or.w.Jobs[job]
	if j.CommandCounts[plan.CommandAbandon] > 0 || n.Leaving || n.Draining || or.stateOf(n).reportCount > 4*pd.InfoOf(n).Cfg.Pages {
		return false
	}
	for i := range j.Batches {
		b := &j.Batches[i]
		if chunk < b.From || chunk >= b.To {
			continue
		}
		// The promise began between the start and the end of the put.
		put, startedAt := or.oracles().claims.findPromise(n, b)
		return put != nil && !or.oracles().claims.mayHaveEnded(n, job) &&
			n.ReadingAt(or.w.Now).Sub(n.ReadingAt(put.FinishedAt)) >= pd.InfoOf(n).Cfg.ClaimTTL &&
			n.ReadingAt(or.w.Now).Sub(n.ReadingAt(startedAt)) < 2*pd.InfoOf(n).Cfg.ClaimTTL
	}
	return false
}
