package table

import "testing"

// Tables with many pieces and parts are what small ones are: each row and each entry is found, equal hashes in their
// order, and what was taken out is not.
func TestLargeTables(t *testing.T) {
	const rows, same = 20*entriesPerPart + 1, 3
	s, x, c := NewSlab[int](rows), Index{}, Compact{}
	hashOf := func(i int) uint64 { return foldProduct(uint64(i / same)) }
	all := make([]Handle, rows)
	for i := range all {
		h, v := s.Add()
		*v, all[i] = i, h
		x.Add(hashOf(i), h)
		c.Add(hashOf(i), h)
	}
	if len(x.more) != rows/entriesPerPart || len(c.more) != rows/entriesPerPart || s.rows.rows.Len() != rows {
		t.Fatalf("%d and %d parts beside the first, %d cells", len(x.more), len(c.more), s.rows.rows.Len())
	}
	for round := range same {
		for i := range all {
			left := i - i%same + round // Those before are gone.
			p, q := x.Find(hashOf(i)), c.Find(hashOf(i))
			for ; left < min(rows, i-i%same+same); left++ {
				if p.Handle() != all[left] || s.At(q.Slot()) != all[left] || *s.Get(all[left]) != left {
					t.Fatalf("round %d, row %d: found %x and slot %d, want %x", round, left, p.Handle(), q.Slot(), all[left])
				}
				p, q = x.Next(p), c.Next(q)
			}
			if p.Found() || q.Found() {
				t.Fatalf("round %d: more is found of row %d than there is", round, i)
			}
		}
		for i := round; i < rows; i += same {
			x.Remove(hashOf(i), all[i])
			c.Remove(hashOf(i), all[i])
			s.Remove(all[i])
		}
	}
	if x.Len()+c.Len()+s.Len() != 0 {
		t.Fatalf("%d, %d and %d are left", x.Len(), c.Len(), s.Len())
	}
	if h, _ := s.Add(); h.Slot() != all[0].Slot() {
		t.Errorf("slot %d is used again first, want the one that has been free longest", h.Slot())
	}
}

// TestGrowthIsBounded: a row more moves no row that there is, once there are as many as in one piece, and an entry
// more at the most those of one part, which stays as large as it is however many there are.
func TestGrowthIsBounded(t *testing.T) {
	const rows = 200 * entriesPerPart
	s, x, c := NewSlab[int](rows), Index{}, Compact{}
	var where [pieceSize + 1]*int
	for i := range rows {
		h, v := s.Add()
		if i < len(where) && i >= pieceSize-1 {
			where[i] = v
		}
		x.Add(foldProduct(uint64(i)), h)
		c.Add(foldProduct(uint64(i)), h)
	}
	for _, slot := range []int32{pieceSize - 1, pieceSize} {
		if s.Get(s.At(slot)) != where[slot] {
			t.Errorf("the row in slot %d was moved", slot)
		}
	}
	for i := range 200 {
		if n := x.partAt(i).n; n > 4*entriesPerPart {
			t.Errorf("part %d of an index has %d entries", i, n)
		}
		if n := c.partAt(i).n; n > 4*entriesPerPart {
			t.Errorf("part %d of a compact index has %d entries", i, n)
		}
	}
}
