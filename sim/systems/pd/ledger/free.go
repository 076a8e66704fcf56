package ledger

import (
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/world"
)

// freeOracle judges how many pages a machine counts as free.
type freeOracle struct{ oracleBase }

func (*freeOracle) subscribe(l *oracle.Subscriptions[freeOracle]) {
	oracle.On(l, func(o *freeOracle, _ *oracle.Call, e stepCounted) { o.verifyFree(e.node, e.stats, e.held) })
}

// verifyFree compares the pages that a machine counts as free with the pages that drivers saw in use before the oracles
// handled the step.
func (or *freeOracle) verifyFree(n *world.Node, s *rank.Stats, inUse int) {
	or.countJudged(checkFree)
	if s.PagesTotal != n.EnginePages() || s.PagesFree < 0 || s.DeviceTotal != n.SecondPages || s.DeviceFree < 0 ||
		s.PagesFree+s.ArenaFree+s.DeviceFree+inUse > s.PagesTotal+s.ArenaTotal+s.DeviceTotal {
		or.fail(checkFree, "node %d counts %d of %d pages free, and %d of %d of its second pool, while %d are in use",
			n.AsSubject(), s.PagesFree, s.PagesTotal, s.DeviceFree, s.DeviceTotal, inUse)
	}
}
