package ledger

import (
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// freeOracle judges how many pages a machine counts as free.
type freeOracle struct{ judge }

func (*freeOracle) listen(l *oracle.Listen[freeOracle]) {
	oracle.On(l, func(o *freeOracle, _ *oracle.Call, e counted) { o.free(e.node, e.stats, e.held) })
}

// free compares the pages that a machine counts as free with the pages that drivers saw in use before the oracles
// handled the step.
func (or *freeOracle) free(n *world.Node, s *rank.Stats, held int) {
	or.judged(checkFree)
	if s.PagesTotal != n.Engines() || s.PagesFree < 0 || s.DeviceTotal != n.Second || s.DeviceFree < 0 ||
		s.PagesFree+s.ArenaFree+s.DeviceFree+held > s.PagesTotal+s.ArenaTotal+s.DeviceTotal {
		or.fail(checkFree, "node %d counts %d of %d pages free, and %d of %d of its second pool, while %d are in use",
			n.It(), s.PagesFree, s.PagesTotal, s.DeviceFree, s.DeviceTotal, held)
	}
}
