package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// What is judged here.
var (
	checkLapse   = oracle.NewCheck("S20", "lapses told")
	checkMissing = oracle.NewCheck("S20", "gets of what lapsed")
)

// lapsedOracle judges how long chunks are kept, and what is said of it.
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

// lapsing is what the ledger knows of the ends of what one life keeps, by chunk.
type lapsing struct {
	first   map[uint32]int64 // when it was first whole here
	strange map[uint64]int64 // the same, by hashes, of what strangers say that they put, where they are trusted
	told    map[uint32]int64 // when it was last said to have lapsed
	count   uint32           // how often anything was
}

func (q *lapsing) empty() {
	*q = lapsing{first: world.Emptied(q.first), strange: world.Emptied(q.strange), told: world.Emptied(q.told)}
}

// arrived notes that a chunk is whole in this life.
func (q *lapsing) arrived(k uint32, now int64) {
	if q.first == nil {
		q.first = map[uint32]int64{}
	}
	if _, ok := q.first[k]; !ok {
		q.first[k] = now
	}
}

// trusted notes a chunk of a key that no job has: of a stranger, whose word is taken for it (trust_uncommitted).
func (q *lapsing) trusted(hash uint64, now int64) {
	if q.strange == nil {
		q.strange = map[uint64]int64{}
	}
	if _, ok := q.strange[hash]; !ok {
		q.strange[hash] = now
	}
}

// toldLapsed checks a machine's word that a chunk was kept for as long as was promised: nothing is promised before it
// is whole, so it says that no earlier than a ClaimTTL after that, by its own clock.
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

// toldMissing checks what a Get is told of the first chunk that it misses: that it lapsed if and only if it was here
// for that long in vain. What lies between, as nobody but the machine knows when a promise began, may be told either
// way.
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

// lapsedFor says whether a chunk was certainly kept for its request until its time was over, and is certainly
// remembered.
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
		// The promise began between the put's begin and its end.
		put, begun := or.all().claims.promise(n, b)
		return put != nil && !or.all().claims.read(n, job) &&
			n.Shows(or.w.Now).Sub(n.Shows(put.Outcome)) >= pd.Its(n).Cfg.ClaimTTL &&
			n.Shows(or.w.Now).Sub(n.Shows(begun)) < 2*pd.Its(n).Cfg.ClaimTTL
	}
	return false
}
