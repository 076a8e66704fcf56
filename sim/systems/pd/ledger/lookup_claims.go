package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// checkPushClaims checks landings for gets that are over: if a peer's write fails, or arrives after the end of the get
// that requested the write, the landing adds no claim for the request. No reader would come for the chunk, because the
// outcome of the get keeps only a prefix of the chunks.
var checkPushClaims = oracle.NewCheck("L2", "claims on chunks that land after their get")

// landedChunk is a chunk that lands in this step.
type landedChunk struct {
	chunk     uint32
	maxClaims int // the largest number of claims on the chunk after the landing
}

// recordClaims records the claims on the chunks before the machine receives the landing. A get that goes on may add a
// claim.
func (or *lookupOracle) recordClaims(n *world.Node, ev *effects.Landed) {
	state, g := or.stateOf(n), n.Grants[ev.Grant]
	state.landedChunks, state.delivered = state.landedChunks[:0], false
	if g == nil || !g.IsRequestedByOwner() {
		return
	}
	more := 0
	if ev.Complete && !g.Revoking {
		more = 1
	}
	for _, p := range ev.Pages {
		if at := g.PageIndex(p.Index); at >= 0 {
			chunk := g.SharedKeys[at]
			state.landedChunks = append(state.landedChunks, landedChunk{chunk, pd.ClaimsOf(n, or.w.Keys[chunk]) + more})
		}
	}
}

// afterStep compares the recorded claims with the claims now. A chunk is skipped if a promise to a peer or an outcome
// was made in the same step, because promises and outcomes add claims, too.
func (or *lookupOracle) afterStep(n *world.Node) {
	state := or.stateOf(n)
	state.receivedPushes = removeSuperseded(&or.oracleBase, n, state.receivedPushes, (*receivedPushLookup).lookup)
	for _, x := range state.landedChunks {
		if state.delivered || slices.Contains(or.oracles().promises.stateOf(n).touched, x.chunk) {
			or.countVoid(checkPushClaims)
			continue
		}
		if or.countJudged(checkPushClaims); pd.ClaimsOf(n, or.w.Keys[x.chunk]) > x.maxClaims {
			or.fail(checkPushClaims, "node %d adds a claim on chunk %d, which landed after the end of its get", n.AsSubject(),
				oracle.Key(x.chunk))
			return
		}
	}
	state.landedChunks = state.landedChunks[:0]
}
