package directory

import (
	"testing"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/protocol"
)

// A sync that tells chunks fast enough goes on for as long as it takes, and one that does not has only the patience that
// it had before: so the book demands of a directory what a sync at its pace told, and not what one told that was given
// up.
func TestSyncGoesOnAtItsPace(t *testing.T) {
	const every = stuck / perPatience
	for _, c := range []struct {
		name  string
		empty bool             // batches tell of no chunk
		every effects.Duration // from one to the next
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
			x.batch(now, &m) // What comes twice is no progress.
		}
		if goes := x.sync.went == now; goes != c.goes {
			t.Errorf("a sync %s went on at %v of %v", c.name, x.sync.went, now)
		}
	}
}
