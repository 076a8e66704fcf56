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

// Lease returns the lease of the put to which a read grant belongs.
func (f *Source) Lease(ref kernel.Ref) *lease.Owner { return &f.puts.Get(ref.Subject).lease }

// Extend renews a lease, unless this rank drains: then the lease is to end.
func (f *Source) Extend(e *flow.Env, ref kernel.Ref) (lease.Extended, effects.Duration) {
	most := e.Cfg.ReadLeaseMax
	if e.Draining {
		most = 0
	}
	return f.Lease(ref).Extend(&e.Env, f.cfg.PullTTL, most, sourceRef(sourceLease, ref.Subject)), f.cfg.PullTTL
}

// Fits returns how many of the given chunks, from the first on, one put can take: at most as many as one command
// may name and as can be leased at a time, with all keys and pages in one offer. The receiver is assumed to
// accept messages as long as this rank does.
func (f *Source) Fits(cfg *flow.Config, keys [][]byte) int {
	most := min(len(keys), int(cfg.BatchMax), int(f.cfg.PagesMax))
	offer := put.HeadBytes
	for i, key := range keys[:most] {
		offer += len(key) + put.KeyHeadBytes + put.PlaceBytes
		if offer > cfg.Wire.MessageBytes {
			return i
		}
	}
	return most
}

// fitting returns the result of Fits together with the setting that limits it.
func (f *Source) fitting(e *flow.Env, keys [][]byte) engine.Fits {
	fits := put.Fitting(e.Cfg, f.Fits(e.Cfg, keys))
	if fits.Chunks == int(f.cfg.PagesMax) {
		fits.By = e.Pool.Key() + ", pd_pull_backpressure_reserve_pct"
	}
	return fits
}

// Tables visits the table of puts, for inspection only.
func (f *Source) Tables(visit table.Visit) { visit("puts", f.puts.Len(), table.Empty) }

// State returns the state of the put that ref names.
func (f *Source) State(_ *flow.Rooms, ref kernel.Ref) uint16 {
	p := f.puts.Get(ref.Subject)
	switch {
	case p == nil:
		return uint16(put.Gone)
	case p.phase == sourceWithdrawing && p.Conn != 0:
		return uint16(p.State(put.Confirming))
	}
	return uint16(p.State([...]put.State{
		sourceWaiting: put.Waiting, sourceOffering: put.Offering,
		sourceOffered: put.Offered, sourceWithdrawing: put.Committing,
	}[p.phase]))
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
