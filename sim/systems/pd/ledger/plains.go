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

var checkPlains = oracle.NewCheck("S18", "vanilla senders at a time")

// plainsOracle counts plain senders (S18).
type plainsOracle struct {
	judge
	perLife[plainsLife]
	conns []uint64 `snap:"scratch"`
}

// plainsLife records the plain senders of an incarnation of a receiver.
type plainsLife struct {
	served []plainServed `snap:"skip"` // grants under which plain senders may still have pages
}

func (s *plainsLife) startReply() { s.served = s.served[:0] }

// plainServed is a grant to a plain sender.
type plainServed struct {
	conn  uint64
	grant effects.GrantID
}

// serves records a grant to a plain sender, and checks how many plain senders have pages, or have waited since before
// this step.
func (or *plainsOracle) serves(n *world.Node, conn uint64, id effects.GrantID) {
	my := or.at(n)
	my.served = append(slices.DeleteFunc(my.served, func(x plainServed) bool {
		g := n.Grants[x.grant]
		return g == nil || !n.Open(g) || or.all().bearer.lapsed(n, x.grant)
	}), plainServed{conn, id})
	or.conns = append(or.conns[:0], conn)
	also := func(conn uint64) {
		if !slices.Contains(or.conns, conn) {
			or.conns = append(or.conns, conn)
		}
	}
	for _, x := range my.served {
		also(x.conn)
	}
	for i := range or.all().queue.at(n).waiters {
		if o := &or.all().queue.at(n).waiters[i]; o.peer == (effects.Incarnation{}) && o.keys > 0 && o.offer == 0 &&
			!o.fresh {
			also(o.conn)
		}
	}
	or.judged(checkPlains)
	if most := int(cmp.Or(pd.Its(n).Cfg.Tuning.PlainsMax, 16)); len(or.conns) > most {
		or.fail(checkPlains, "node %d serves %d vanilla senders at a time, %d are allowed", n.It(), len(or.conns), most)
	}
}
