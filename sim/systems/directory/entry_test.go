package directory

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// A sync that delivers chunks fast enough may take as long as it needs; the timeout of a slower sync is not extended.
// The ledger therefore requires a directory to know the chunks of a fast sync, and not those of a sync that was given
// up.
func TestSyncGoesOnAtItsPace(t *testing.T) {
	const every = syncTimeout / batchesPerTimeout
	for _, c := range []struct {
		name  string
		empty bool             // batches have no chunks
		every effects.Duration // time from one batch to the next
		goes  bool
	}{
		{name: "at the pace", every: every, goes: true},
		{name: "too slow", every: 4 * every},
		{name: "without chunks", every: every, empty: true},
	} {
		x := entry{syncTimeout: syncTimeout, sync: &syncState{id: "s", batchSeen: make([]bool, 4*batchesPerTimeout)}}
		now := effects.Time(0)
		for n := range 3 * batchesPerTimeout {
			now = now.Add(c.every)
			m := protocol.FullSyncBatchMsg{SyncID: []byte("s"), BatchID: uint32(n)}
			if !c.empty {
				m.Keys = []protocol.ChunkHash{{Bits: uint64(n)}}
			}
			x.applyBatch(now, &m)
			x.applyBatch(now, &m) // A repeated batch is no progress.
		}
		if goes := x.sync.progressAt == now; goes != c.goes {
			t.Errorf("a sync %s last made progress at %v of %v", c.name, x.sync.progressAt, now)
		}
	}
}
