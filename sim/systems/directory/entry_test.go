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
	const every = stuck / perPatience
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
		x := entry{sync: &syncing{id: "s", seen: make([]bool, 4*perPatience)}}
		now := effects.Time(0)
		for n := range 3 * perPatience {
			now = now.Add(c.every)
			m := protocol.FullSyncBatchMsg{SyncID: []byte("s"), BatchID: uint32(n)}
			if !c.empty {
				m.Keys = []protocol.ChunkHash{{Bits: uint64(n)}}
			}
			x.batch(now, &m)
			x.batch(now, &m) // A repeated batch is no progress.
		}
		if goes := x.sync.went == now; goes != c.goes {
			t.Errorf("a sync %s went on at %v of %v", c.name, x.sync.went, now)
		}
	}
}
