package pd

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank"
	"github.com/kvferry/kvferry/sim/draw"
	"github.com/kvferry/kvferry/sim/world"
)

// varyConfig gives a node other limits and times than its peers have, in a quarter of the seeds. A machine that takes a
// setting of its own for that of the peer, or the other way round, behaves right as long as both are equal. No time becomes
// longer, so that what the plan expects of a run still holds; the reply timeout stays, because it has to be longer than the
// peers' allocation timeouts.
func (w *Cluster) varyConfig(n *world.Node, c *rank.Config) {
	const first = 1 << 33 // of the draws of this function
	if draw.IsFixed(w.Seed) || !draw.Hash(w.Seed, draw.Identity, first, 0).ChancePermille(250) {
		return
	}
	at := func(number uint64) draw.Value { return draw.Hash(w.Seed, draw.Identity, uint64(n.ID), first+1+number) }
	for i, d := range []*effects.Duration{&c.Lease, &c.AllocTimeout, &c.BackoffMax, &c.LeaseGuard} {
		*d = *d * effects.Duration(at(uint64(i)).Between(60, 100)) / 100
	}
	c.BackoffMin = min(c.BackoffMin, c.BackoffMax)
	c.LeaseGuard = min(c.LeaseGuard, c.Lease/4)
	for i, limit := range []*uint32{&c.GrantsMax, &c.WaitersMax, &c.Tuning.AttemptsMax, &c.Tuning.SettleMax, &c.BypassMax} {
		if *limit > 1 && at(uint64(10+i)).ChancePermille(300) {
			*limit -= uint32(at(uint64(20+i)).Between(1, int(min(*limit/2, 8))))
		}
	}
}
