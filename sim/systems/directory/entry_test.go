package directory

import (
	"slices"
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

// What a full sync names may be stated once the sync is complete, however long ago an operation was lost. The records of
// the reports before the loss have faded by then, and a chunk whose eviction was reported during the sync is no part of
// the sync.
func TestSyncRestoresFadedChunks(t *testing.T) {
	const reported, synced, evicted = 1, 2, 3
	batch := func(id uint32, chunks ...uint64) *protocol.FullSyncBatchMsg {
		m := &protocol.FullSyncBatchMsg{SyncID: []byte("s"), BatchID: id}
		for _, k := range chunks {
			m.Keys = append(m.Keys, protocol.ChunkHash{Bits: k})
		}
		return m
	}
	x := entry{syncTimeout: effects.Second, fadeTime: fadeTime, appliesOps: true}
	x.applyOperations(0, []protocol.KVOperation{{Type: protocol.OpAdmit, Key: protocol.ChunkHash{Bits: reported}}})
	x.sync = &syncState{id: "s", batchSeen: make([]bool, 2)}
	x.applyBatch(0, batch(0, synced, evicted))
	x.applyOperations(1, []protocol.KVOperation{{Type: protocol.OpEvict, Key: protocol.ChunkHash{Bits: evicted}, Seq: 5}})
	for n := range effects.Duration(3) {
		x.fadeReports(effects.Time(1).Add(n * fadeTime))
	}
	if len(x.possible) > 0 {
		t.Fatalf("chunks %v may be stated two fade times after a gap", x.possible)
	}
	x.sync.endReceived = true
	x.applyBatch(effects.Time(1).Add(2*fadeTime), batch(1))
	if !slices.Equal(x.possible, []uint64{synced}) {
		t.Errorf("chunks %v may be stated after the sync, want the one that the sync names", x.possible)
	}
}
