package index

import "testing"

// A sweep of one row at a time, through segments that are full to their last slot, finds all that is retired and moves
// the others where they belong. Seeds are many, because few of them fill the last slot.
func TestSweepOfFullSegments(t *testing.T) {
	for seed := range uint64(500) {
		x := New(Limits{Chunks: 100, Holders: 4, Groups: 1, HoldersPerChunk: 2}, seed)
		stays, goes := x.OpenHolder(0, 0, 0), x.OpenHolder(0, 0, 0)
		x.ShowHolder(stays)
		const rows = 13 // of 16 slots
		for hash := range uint64(rows) {
			if hash%3 > 0 {
				x.Add(goes, hash)
			} else {
				x.Add(stays, hash)
			}
		}
		had, _ := x.CountChunks(stays)
		x.RetireHolder(goes)
		for steps := 0; x.Sweep(1); steps++ {
			sound(t, &x)
			if steps >= rows {
				t.Fatalf("seed %d: %d steps of a row each have not swept %d", seed, steps, rows)
			}
		}
		if f := x.Figures(); f.Rows != had || f.Chunks != had || f.Holders != 1 {
			t.Fatalf("seed %d: %+v are left of %d chunks", seed, f, had)
		}
		for hash := range uint64(rows) {
			if hits := x.FindPrefix(0, []uint64{hash}, -1, nil); (len(hits) == 1) != (hash%3 == 0) {
				t.Fatalf("seed %d: %v have chunk %d", seed, hits, hash)
			}
		}
	}
}
