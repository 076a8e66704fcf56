package ledger

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"github.com/kvferry/kvferry/sim/oracle"
	"github.com/kvferry/kvferry/sim/systems/pd"
	"github.com/kvferry/kvferry/sim/world"
)

// The engine must not fill pages that the engine shares, and the cache must not evict shared pages: the engine reads
// the pages, and peers may read the pages, too.

var checkWithdrawn = oracle.NewCheck("S4", "pages that engines withdraw")

// recordShared records that peers may read pages which an engine goes on reading.
func (or *enginePageOracle) recordShared(n *world.Node, c *pd.Command) {
	for i, p := range c.Pages {
		key := c.Body.(*engine.Share).Keys[i]
		if at, ready := pd.ReadyAt(n, key); !ready || at.Index != p.Index || at.Generation != p.Generation {
			continue // The chunk was present already, so the engine keeps this page for its own use.
		}
		pg := &n.Pool.Pages[p.Index]
		pg.Reserved, pg.FillState = 0, world.FillNone
		pg.Pins++
		n.Pool.UpdateInUse(p.Index)
		hash := pd.KeyHashOf(n, key)
		or.oracles().writeGrants.recordReady(n, hash)
		or.oracles().cache.recordShared(n, p.Index, hash)
	}
}

// verifyWithdrawn checks the pages of a share that an engine withdraws: no peer reads the pages, and no read of the
// pages can begin. Then the pages belong to the engine again.
func (or *enginePageOracle) verifyWithdrawn(n *world.Node, c *pd.Command) {
	w := or.w
	share := &w.Commands[c.Target-1]
	reserve := w.Jobs[c.Job].Batches[c.Batch].Reserve
	or.countJudged(checkWithdrawn)
	if id, page := or.oracles().readLeases.findLease(n, c.Pages); id != 0 {
		or.fail(checkWithdrawn, "node %d gives page %d back to the engine for ticket %d while the page may be read under grant %d",
			n.AsSubject(), n.PageSubject(page), oracle.Ticket(c.Target), n.GrantSubject(id))
		return
	}
	for i, p := range c.Pages {
		pg := &n.Pool.Pages[p.Index]
		key := share.Body.(*engine.Share).Keys[i]
		at, ready := pd.ReadyAt(n, key)
		if pg.Reserved != 0 {
			continue
		}
		switch pg.Pins--; {
		case pg.Readers > 0 || pg.Pins > 0:
			or.fail(checkWithdrawn, "node %d gives page %d back to the engine for ticket %d while the page may still be read",
				n.AsSubject(), n.PageSubject(p.Index), oracle.Ticket(c.Target))
		case ready && at.Index == p.Index:
			or.fail(checkWithdrawn, "node %d gives page %d back to the engine for ticket %d, and still uses the page for a chunk",
				n.AsSubject(), n.PageSubject(p.Index), oracle.Ticket(c.Target))
		}
		pg.Reserved = reserve
		n.Pool.UpdateInUse(p.Index)
		or.oracles().cache.removeShared(n, p.Index)
	}
}
