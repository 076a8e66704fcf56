package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A reader that misses a chunk is told that the chunk lapsed, if the chunk was kept for the reader's request, or for no
// named request, until the time was over, and the machine still has the record. Otherwise the chunk is reported as not
// found. Each promise is followed individually.

var checkMissed = oracle.NewCheck("S20", "gets of chunks that were kept until they lapsed")

// noChunk is the chunk of an expired promise of a chunk that is of no job.
const noChunk = ^uint32(0)

// expiredPromise is a promise that has expired.
type expiredPromise struct {
	chunk     uint32 // or noChunk
	request   uint64 // 0: the promise was for no named request
	expiredAt effects.Time
	uncertain bool // there may have been no promise, the promise may have been made again, or the record may be gone
}

// recordExpired records that a promise has expired. A machine has room for as many such records as for claims beyond
// the first claim on a page, and drops the oldest records for newer records. From then on the promises of the oldest
// records are uncertain, even if fewer records are left when a reader comes. Example with room for six records: seven
// promises expire, and two of the promises are made again. A reader that misses the chunk of the oldest promise is told
// that the chunk is not found.
func (or *promiseOracle) recordExpired(n *world.Node, x expiredPromise) {
	state := or.stateOf(n)
	state.expired = append(state.expired, x)
	surplus := len(state.expired) - cmp.Or(int(pd.InfoOf(n).Cfg.ClaimsMax), 8*int(pd.InfoOf(n).Cfg.Pages))
	if surplus <= 0 {
		return
	}
	newest := state.expired[surplus-1].expiredAt // The machine chooses which records of one instant it drops first.
	for i := range state.expired {
		if e := &state.expired[i]; e.expiredAt <= newest {
			e.uncertain = true
		}
	}
}

// removeExpired drops the record that a promise has expired, because the promise is made again.
func (s *promiseState) removeExpired(chunk uint32, request uint64, certain bool) {
	s.expired = slices.DeleteFunc(s.expired, func(x expiredPromise) bool { return certain && x.chunk == chunk && x.request == request })
	for i := range s.expired {
		if x := &s.expired[i]; x.chunk == chunk && x.request == request {
			x.uncertain = true
		}
	}
}

// verifyMissed checks the code with which a Get reports the first missing chunk (S20).
func (or *promiseOracle) verifyMissed(n *world.Node, e *effects.Deliver, c *pd.Command) {
	j := &or.w.Jobs[c.Job]
	isMiss := isUnknownCode(e.Code) || e.Code == effects.Lapsed
	if c.Kind != plan.CommandGet || !isMiss || j.KeysIn(e.Hits) >= len(j.KeyNumbers) || n.Draining || n.Leaving || !or.seesAllPromises(n) {
		return
	}
	state, now, chunk, request := or.stateOf(n), or.w.ReadClock(n), j.KeyNumbers[j.KeysIn(e.Hits)], requestHash(j.Name)
	mayHaveExpired, mustHaveExpired := false, false
	for _, x := range state.expired {
		if x.chunk == chunk && (x.request == request || x.request == 0 || request == 0) {
			recordEnd := x.expiredAt.Add(pd.InfoOf(n).Cfg.ClaimTTL)
			mayHaveExpired, mustHaveExpired = mayHaveExpired || now <= recordEnd, mustHaveExpired || now < recordEnd && !x.uncertain
		}
	}
	or.countJudged(checkMissed)
	switch {
	case isUnknownCode(e.Code) && mustHaveExpired:
		or.fail(checkMissed, "node %d ends ticket %d (get) as %s although chunk %d was kept until it lapsed",
			n.AsSubject(), oracle.Ticket(e.Ticket), e.Code, oracle.Key(chunk))
	case e.Code == effects.Lapsed && !mayHaveExpired:
		or.fail(checkMissed, "node %d ends ticket %d (get) as lapsed, and no promise of chunk %d has lapsed recently",
			n.AsSubject(), oracle.Ticket(e.Ticket), oracle.Key(chunk))
	}
}
