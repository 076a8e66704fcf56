package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// A done message of a recall that gets no reply is sent again, as often as any request is. The query for the lease has
// attempts of its own, which do not count.

// toldGrant is a grant with a done message that has no reply yet.
type toldGrant struct {
	heldGrant
	corr effects.Corr
	conn uint64
}

// recordTold records a done message of a recall, before recordDone removes the record of the grant.
func (or *doneMessageOracle) recordTold(n *world.Node, c *world.Conn, corr effects.Corr, id effects.GrantID) {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.grants, func(x heldGrant) bool { return x.grant == id && x.owner == c.Server && x.channel == c.Channel })
	if i < 0 {
		return
	}
	x := toldGrant{state.grants[i], corr, c.ID}
	x.attempts++
	state.told = append(state.told, x)
}

// removeTold removes the record of a done message that got a reply.
func (or *doneMessageOracle) removeTold(n *world.Node, corr effects.Corr) {
	state := or.stateOf(n)
	state.told = slices.DeleteFunc(state.told, func(x toldGrant) bool { return x.corr == corr })
}

// recordUnanswered records that a done message of a recall gets no reply. Another one is due until the attempts are
// used up. The connections that failed by now, and the one of that message, are no obstacle.
func (or *doneMessageOracle) recordUnanswered(n *world.Node, corr effects.Corr) {
	state := or.stateOf(n)
	i := slices.IndexFunc(state.told, func(x toldGrant) bool { return x.corr == corr })
	if i < 0 {
		return
	}
	x, conn := state.told[i].heldGrant, state.told[i].conn
	state.told = slices.Delete(state.told, i, i+1)
	if x.attempts >= cmp.Or(pd.InfoOf(n).Cfg.Tuning.AttemptsMax, 3) {
		return
	}
	x.closedConns, x.frozenAtGrant, x.slow = 0, n.FrozenTime, false
	for _, c := range or.w.Conns {
		if x.hasFailed(n, c) || c.ID == conn {
			x.closedConns++
		}
	}
	state.grants = append(state.grants, x)
}
