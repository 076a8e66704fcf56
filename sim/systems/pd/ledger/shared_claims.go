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
var checkPushClaims = oracle.NewCheck("L2", "claims on what lands for nobody")

// landedFor is a chunk that lands in this step.
type landedFor struct {
	chunk uint32
	most  int // the largest number of claims on the chunk after the landing
}

// landing records the claims on the chunks before the machine receives the landing. A get that goes on may add a claim.
func (or *sharedOracle) landing(n *world.Node, ev *effects.Landed) {
	my, g := or.at(n), n.Grants[ev.Grant]
	my.landed, my.gave = my.landed[:0], false
	if g == nil || len(g.Shared) == 0 {
		return
	}
	more := 0
	if ev.Complete && !g.Revoking {
		more = 1
	}
	for _, p := range ev.Pages {
		if at := g.Place(p.Index); at >= 0 {
			chunk := g.Shared[at]
			my.landed = append(my.landed, landedFor{chunk, pd.ClaimsOf(n, or.w.Keys[chunk]) + more})
		}
	}
}

// afterStep compares the recorded claims with the claims now. A chunk is skipped if a promise to a peer or an outcome
// was made in the same step, because promises and outcomes add claims, too.
func (or *sharedOracle) afterStep(n *world.Node) {
	my := or.at(n)
	my.came = newest(&or.judge, n, my.came, (*camePush).its)
	for _, x := range my.landed {
		if my.gave || slices.Contains(or.all().claimed.at(n).touched, x.chunk) {
			or.void(checkPushClaims)
			continue
		}
		if or.judged(checkPushClaims); pd.ClaimsOf(n, or.w.Keys[x.chunk]) > x.most {
			or.fail(checkPushClaims, "node %d keeps chunk %d, which landed for nobody, for a request", n.It(),
				oracle.Key(x.chunk))
			return
		}
	}
	my.landed = my.landed[:0]
}
