package table

import "testing"

// TestEqualHashesKeepTheirOrder: also where their run goes on at the beginning of the cells as these grow.
func TestEqualHashesKeepTheirOrder(t *testing.T) {
	hash := uint64(1)
	for mixHash(hash)&15 != 15 {
		hash++
	}
	var x Index
	for n := range 100 {
		x.Add(hash, Handle(n+1))
		want := Handle(1)
		for p := x.Find(hash); p.Found(); p = x.Next(p) {
			if p.Handle() != want {
				t.Fatalf("of %d entries of one hash, %d comes where %d was added", x.Len(), p.Handle(), want)
			}
			want++
		}
		if int(want) != n+2 {
			t.Fatalf("%d entries of one hash are found, %d were added", want-1, n+1)
		}
	}
}
