package pull

import (
	"github.com/kvferry/kvferry/fsm/rank/flows/engine"
	"strconv"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/rank/flows/flow"
	"github.com/kvferry/kvferry/fsm/rank/flows/put"
	"github.com/kvferry/kvferry/fsm/rank/kernel"
	"github.com/kvferry/kvferry/fsm/rank/peers/lease"
	"github.com/kvferry/kvferry/fsm/table"
)

// LeaseOf returns the lease of the put to which a read grant belongs.
func (f *Source) LeaseOf(ref kernel.Ref) *lease.Owner { return &f.puts.Get(ref.Subject).lease }

// ExtendLease renews a lease, unless this rank drains: then the lease is to end.
func (f *Source) ExtendLease(e *flow.Env, ref kernel.Ref) (lease.ExtendOutcome, effects.Duration) {
	limit := e.Cfg.ReadLeaseMax
	if e.Draining {
		limit = 0
	}
	return f.LeaseOf(ref).Extend(&e.Env, f.cfg.PullTTL, limit, sourceRef(kindLease, ref.Subject)), f.cfg.PullTTL
}

// CountFitting returns how many of the given chunks, from the first on, one put can take: at most as many as one
// command may name and as can be leased at a time, with all keys and pages in one offer. The receiver is assumed to
// accept messages as long as this rank does.
func (f *Source) CountFitting(cfg *flow.Config, keys [][]byte) int {
	limit := min(len(keys), int(cfg.BatchMax), int(f.cfg.PagesMax))
	offer := put.HeadBytes
	for i, key := range keys[:limit] {
		offer += len(key) + put.KeyHeadBytes + put.PageNameBytes
		if offer > cfg.Wire.MessageBytes {
			return i
		}
	}
	return limit
}

// chunkLimit returns the result of CountFitting together with the setting that limits it.
func (f *Source) chunkLimit(e *flow.Env, keys [][]byte) engine.ChunkLimit {
	fits := put.LimitChunks(e.Cfg, f.CountFitting(e.Cfg, keys))
	if fits.Chunks == int(f.cfg.PagesMax) {
		fits.Key = e.Pool.ConfigKey() + ", pd_pull_backpressure_reserve_pct"
	}
	return fits
}

// VisitTables visits the table of puts, for inspection only.
func (f *Source) VisitTables(visit table.VisitFunc) { visit("puts", f.puts.Len(), table.Empty) }

// RowState returns the state of the put that ref names.
func (f *Source) RowState(_ *flow.Rooms, ref kernel.Ref) uint16 {
	p := f.puts.Get(ref.Subject)
	switch {
	case p == nil:
		return uint16(put.NoRow)
	case p.phase == putWithdrawing && p.Conn != 0:
		return uint16(p.StateAt(put.Confirming))
	}
	return uint16(p.StateAt([...]put.State{
		putWaiting: put.Waiting, putOffering: put.Offering,
		putOffered: put.Offered, putWithdrawing: put.Committing,
	}[p.phase]))
}

func formatCount(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
