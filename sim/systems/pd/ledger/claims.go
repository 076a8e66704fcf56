package ledger

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/plan"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

var checkPromisedGet = oracle.NewCheck("S9", "gets of promised chunks")

// claimOracle judges whether chunks are kept for the request that they were put for (S9, rule M7).
type claimOracle struct {
	oracleBase
	perIncarnation[claimState]
}

func (*claimOracle) subscribe(l *oracle.Subscriptions[claimOracle]) {
	oracle.On(l, func(o *claimOracle, _ *oracle.Call, e pd.GetOutcome) {
		if e.Command.Kind == plan.CommandGet {
			o.verifyGet(e.Node, e.Effect, e.Command)
		}
	})
	oracle.On(l, func(o *claimOracle, _ *oracle.Call, e stepCounted) { o.recordCrowding(e.node, e.stats) })
}

// claimState records, for an incarnation of a node, how full the table of claims was.
type claimState struct {
	crowdedAt int64 `snap:"skip"` // when the table of claims was last almost full
}

func (s *claimState) clearForReuse() { *s = claimState{} }

// verifyGet checks a Get that ends short against the promises of the request's puts. The chunks of a successful put,
// both chunks that were sent and chunks that were present before, stay for the request's own reader until the claims
// expire, even if further requests read the chunks (rule M7).
func (or *claimOracle) verifyGet(n *world.Node, e *effects.Deliver, c *pd.Command) {
	j := &or.w.Jobs[c.Job]
	if !isMissCode(e.Code) || j.CommandCounts[plan.CommandAbandon] > 0 || n.Leaving || n.Draining {
		return
	}
	for i := range j.Batches {
		b := &j.Batches[i]
		short := int(e.Hits) < b.To
		if !or.isPromised(n, b) || short && or.mayHaveEnded(n, c.Job) {
			or.countVoid(checkPromisedGet)
			return // The chunk may be missing, and a Get finds nothing behind a missing chunk.
		}
		if or.countJudged(checkPromisedGet); short {
			or.fail(checkPromisedGet,
				"node %d gives ticket %d (get) no more than %d chunks of request %q although put %d, which ended well, promised %d",
				n.AsSubject(), oracle.Ticket(e.Ticket), e.Hits, oracle.Request(j.Name), oracle.Ticket(b.Put), b.To)
			return
		}
	}
}

// isPromised reports whether a put promises the chunks of a batch to a reader at n at this instant.
func (or *claimOracle) isPromised(n *world.Node, b *pd.Batch) bool {
	put, givenAt := or.findPromise(n, b)
	return put != nil && n.ReadingAt(or.w.Now).Sub(n.ReadingAt(givenAt)) < pd.InfoOf(n).Cfg.ClaimTTL
}

// findPromise returns the put that made n promise the chunks of a batch, and when that put began. The result is nil if
// no put certainly made the promise. A put promises chunks only at the receiver of the put. Where nodes both prefill
// and decode, an engine may ask the sender's node for the request, and the sender's node keeps nothing for the request.
func (or *claimOracle) findPromise(n *world.Node, b *pd.Batch) (put *pd.Command, givenAt int64) {
	if b.Put == 0 || b.Refilled || b.ReceiverIncarnation != n.Incarnation {
		return nil, 0
	}
	put = &or.w.Commands[b.Put-1]
	sender := or.w.Nodes[put.Node]
	if or.w.Jobs[put.Job].Receiver != n.ID || n.KeepsOffers && sender.OffersChunks {
		return nil, 0
	}
	if !put.Finished || put.Code != effects.OK || !or.w.IsRunning(put.Node, put.Incarnation) {
		return nil, 0 // The command may also be over because its node died.
	}
	// No claim is older than the put that makes the claim. A peer that has used up the peer's share of claims gets no
	// more claims, except the first claim on a page.
	givenAt = pd.ReceiptTime(put, sender)
	if givenAt <= or.stateOf(n).crowdedAt {
		return nil, 0
	}
	return put, givenAt
}

// mayHaveEnded reports whether the request's claims at n may have ended by commands of the request: an earlier Get got
// chunks, a Fetch was issued (a fetch that has begun consumes claims even if the fetch fails), or the chunks were given
// up.
func (or *claimOracle) mayHaveEnded(n *world.Node, job int) bool {
	for i := range or.w.Commands {
		c := &or.w.Commands[i]
		if c.Job != job || c.Node != n.ID || c.Incarnation != n.Incarnation {
			continue
		}
		if c.Kind == plan.CommandGet && len(c.Pages) > 0 || c.Kind == plan.CommandFetch || c.Kind == pd.WantGiveUp {
			return true
		}
	}
	return false
}

// recordCrowding records when so many claims are open that a single step could make a peer reach the share of a peer.
// No peer reaches that share before half of the table is taken. Unless the plan says otherwise, the table has room for
// eight claims on each page beyond the first.
func (or *claimOracle) recordCrowding(n *world.Node, s *rank.Stats) {
	room := 8 * s.PagesTotal
	if pd.InfoOf(n).Cfg.ClaimsMax > 0 {
		room = int(pd.InfoOf(n).Cfg.ClaimsMax)
	}
	if s.Claims >= max(0, room/2-s.PagesTotal) {
		or.stateOf(n).crowdedAt = or.w.Now
	}
}
