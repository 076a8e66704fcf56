package ledger

import (
	"cmp"
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// Each connection of a plain sender counts as a separate peer with the quota of a peer. Therefore the number of these
// connections is bounded: no more connections have pages, or wait for pages.

var checkPlains = oracle.NewCheck("S18", "number of vanilla senders with pages")

// plainCountOracle counts plain senders (S18).
type plainCountOracle struct {
	oracleBase
	perIncarnation[plainCountState]
	conns []uint64 `snap:"scratch"`
}

// plainCountState records the plain senders of an incarnation of a receiver.
type plainCountState struct {
	grants []plainGrant `snap:"skip"` // grants under which plain senders may still have pages
}

func (s *plainCountState) clearForReuse() { s.grants = s.grants[:0] }

// plainGrant is a grant to a plain sender.
type plainGrant struct {
	conn  uint64
	grant effects.GrantID
}

// verifyCount records a grant to a plain sender, and checks how many plain senders have pages, or have waited since
// before this step.
func (or *plainCountOracle) verifyCount(n *world.Node, conn uint64, id effects.GrantID) {
	state := or.stateOf(n)
	state.grants = append(slices.DeleteFunc(state.grants, func(x plainGrant) bool {
		g := n.Grants[x.grant]
		return g == nil || !n.AllowsStores(g) || or.oracles().plainSenders.isExpired(n, x.grant)
	}), plainGrant{conn, id})
	or.conns = append(or.conns[:0], conn)
	addConn := func(conn uint64) {
		if !slices.Contains(or.conns, conn) {
			or.conns = append(or.conns, conn)
		}
	}
	for _, x := range state.grants {
		addConn(x.conn)
	}
	for i := range or.oracles().queue.stateOf(n).pending {
		if o := &or.oracles().queue.stateOf(n).pending[i]; o.peer == (effects.Incarnation{}) && o.keyCount > 0 && o.offerGrant == 0 &&
			!o.isNew {
			addConn(o.conn)
		}
	}
	or.countJudged(checkPlains)
	if limit := int(cmp.Or(pd.InfoOf(n).Cfg.Tuning.PlainsMax, 16)); len(or.conns) > limit {
		or.fail(checkPlains, "node %d serves %d vanilla senders at a time, %d are allowed", n.AsSubject(), len(or.conns), limit)
	}
}

// subscribe subscribes to nothing: other oracles call this one.
func (*plainCountOracle) subscribe(*oracle.Subscriptions[plainCountOracle]) {}
