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
	checkLapse   = oracle.NewCheck("S20", "lapses told")
	checkMissing = oracle.NewCheck("S20", "gets of what lapsed")
)

// lapsedOracle judges how long chunks are kept, and what machines report when that time is over (S20).
type lapsedOracle struct {
	judge
	perLife[lapsing]
}

func (*lapsedOracle) listen(l *oracle.Listen[lapsedOracle]) {
	oracle.On(l, func(o *lapsedOracle, _ *oracle.Call, e pd.Got) { o.toldMissing(e.Node, e.Effect, e.Command) })
	oracle.On(l, func(o *lapsedOracle, _ *oracle.Call, e world.Observed) {
		if e.Effect.Fact == effects.FactLapsed {
			o.toldLapsed(e.Node, e.Effect)
		}
	})
}

// lapsing records, by chunk, what the ledger knows of the expiry of chunks in one incarnation of a node.
type lapsing struct {
	first   map[uint32]int64 // when the chunk was first whole
	strange map[uint64]int64 // the same by hash, for keys that trusted strangers claim to have put
	told    map[uint32]int64 // when the chunk was last reported as lapsed
	count   uint32           // the number of lapses that were reported
}

func (q *lapsing) startReply() {
	*q = lapsing{first: world.Emptied(q.first), strange: world.Emptied(q.strange), told: world.Emptied(q.told)}
}

// arrived records that a chunk is whole in this incarnation.
func (q *lapsing) arrived(k uint32, now int64) {
	if q.first == nil {
		q.first = map[uint32]int64{}
	}
	if _, ok := q.first[k]; !ok {
		q.first[k] = now
	}
}

// trusted records a chunk with a key that no job has, from a stranger that is trusted to have written the chunk
// (trust_uncommitted).
func (q *lapsing) trusted(hash uint64, now int64) {
	if q.strange == nil {
		q.strange = map[uint64]int64{}
	}
	if _, ok := q.strange[hash]; !ok {
		q.strange[hash] = now
	}
}

// toldLapsed checks a machine's report that a chunk was kept for as long as was promised. Nothing is promised before
// the chunk is whole, so the report comes no earlier than ClaimTTL after that, by the machine's own clock.
func (or *lapsedOracle) toldLapsed(n *world.Node, e *effects.Observe) {
	or.judged(checkLapse)
	q := or.at(n)
	k, ok := or.truth().named(n, e.ID)
	if !ok {
		if since, ok := q.strange[e.ID]; !ok || n.Shows(or.w.Now).Sub(n.Shows(since)) < pd.Its(n).Cfg.ClaimTTL {
			or.fail(checkLapse, "node %d says that a chunk lapsed that nobody put", n.It())
		}
		return
	}
	if q.told == nil {
		q.told = map[uint32]int64{}
	}
	q.told[k], q.count = or.w.Now, q.count+e.Count
	since, ok := q.first[k]
	if !ok || n.Shows(or.w.Now).Sub(n.Shows(since)) < pd.Its(n).Cfg.ClaimTTL {
		or.fail(checkLapse, "node %d says that chunk %d lapsed, before it can have been kept for %d ns",
			n.It(), k, pd.Its(n).Cfg.ClaimTTL)
	}
}

// toldMissing checks the code with which a Get reports the first missing chunk. The code is Lapsed if and only if the
// chunk was kept for the whole promised time without being read. Between the earliest and the latest possible end of
// the promise, either code is accepted, because only the machine knows when the promise began.
func (or *lapsedOracle) toldMissing(n *world.Node, e *effects.Deliver, c *pd.Command) {
	j := &or.w.Jobs[c.Job]
	if j.After(e.Hits) >= len(j.Keys) {
		return
	}
	k := j.Ids[j.After(e.Hits)]
	q := or.at(n)
	told, ok := q.told[k]
	if e.Code == effects.Lapsed || unknown(e.Code) && c.Want == plan.WantGet {
		or.judged(checkMissing)
	}
	switch {
	case e.Code == effects.Lapsed && (!ok || n.Shows(or.w.Now).Sub(n.Shows(told)) > pd.Its(n).Cfg.ClaimTTL):
		or.fail(checkMissing, "node %d ends ticket %d (%s) as lapsed; it told of no such end of chunk %d, or too long ago",
			n.It(), oracle.Ticket(e.Ticket), c.Want, k)
	case unknown(e.Code) && c.Want == plan.WantGet && or.lapsedFor(n, c.Job, j.After(e.Hits)):
		or.fail(checkMissing,
			"node %d ends ticket %d (get) as %s; chunk %d was kept for request %q until its time was over",
			n.It(), oracle.Ticket(e.Ticket), e.Code, k, oracle.Request(j.Name))
	}
}

// lapsedFor reports whether a chunk was certainly kept for the request until the promised time was over, and the
// machine certainly still has a record of the lapse.
func (or *lapsedOracle) lapsedFor(n *world.Node, job, chunk int) bool {
	j := &or.w.Jobs[job]
	if j.Given[plan.WantAbandon] > 0 || n.Leaving || n.Draining || or.at(n).count > 4*pd.Its(n).Cfg.Pages {
		return false
	}
	for i := range j.Batches {
		b := &j.Batches[i]
		if chunk < b.From || chunk >= b.To {
			continue
		}
		// The promise began between the start and the end of the put.
		put, begun := or.all().claims.promise(n, b)
		return put != nil && !or.all().claims.read(n, job) &&
			n.Shows(or.w.Now).Sub(n.Shows(put.Outcome)) >= pd.Its(n).Cfg.ClaimTTL &&
			n.Shows(or.w.Now).Sub(n.Shows(begun)) < 2*pd.Its(n).Cfg.ClaimTTL
	}
	return false
}
