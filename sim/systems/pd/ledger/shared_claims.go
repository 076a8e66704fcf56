package ledger

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// checkPushClaims: of what a peer writes that went wrong, or came when its get was over, nothing is kept for the
// request by the landing. Nobody would come for it: an outcome keeps the prefix that it names.
var checkPushClaims = oracle.NewCheck("L2", "claims on what lands for nobody")

// A landedFor is a chunk that lands.
type landedFor struct {
	chunk uint32
	most  int // claims on it after that
}

// landing notes what is claimed of chunks before the machine is told: for a get that goes on one claim more may be.
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

// afterStep compares that with what is claimed now. A promise to a peer, or an outcome, in the same step is its own.
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
