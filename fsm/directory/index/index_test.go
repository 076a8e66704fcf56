package index

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// sound holds the index to what its comments say of its own shape.
func sound(t interface{ Fatalf(string, ...any) }, x *Index) {
	rows, blocks, chunks := 0, 0, map[Holder]int{}
	for number := range x.segments {
		s := &x.segments[number]
		at, n, last := 0, 0, uint64(0)
		for i, row := range s.slots {
			if row.ids == 0 {
				continue
			}
			if at = max(at, s.homeSlot(row.place)); at != i {
				t.Fatalf("segment %d: the row at %d belongs to %d", number, i, at)
			}
			if n > 0 && row.place <= last || x.segmentOf(row.place) != s {
				t.Fatalf("segment %d: the row at %d stands in no order, or in a segment that is not its own", number, i)
			}
			at, last = at+1, row.place
			n++
			ids := members(x, row.ids)
			slices.Sort(ids)
			if len(slices.Compact(slices.Clone(ids))) != len(ids) || len(ids) <= inlineHolders && isChain(row.ids) {
				t.Fatalf("a row has %v, %x", ids, row.ids)
			}
			blocks += x.countBlocks(row.ids)
			for _, id := range ids {
				chunks[id]++
			}
		}
		if rows += n; n != int(s.rows) || s.rows > s.maxRows {
			t.Fatalf("segment %d has %d rows, counts %d, and may have %d", number, n, s.rows, s.maxRows)
		}
	}
	if rows != x.rowCount || blocks != x.blocks.used {
		t.Fatalf("%d rows and %d blocks, counted as %d and %d", rows, blocks, x.rowCount, x.blocks.used)
	}
	for id := range x.holders.rows {
		if h := &x.holders.rows[id]; h.count != chunks[Holder(id)] || h.state == stateUnused && h.count != 0 {
			t.Fatalf("holder %d has %d chunks and counts %d in state %d", id, chunks[Holder(id)], h.count, h.state)
		}
	}
}

func members(x *Index, ids uint64) (all []Holder) {
	if !isChain(ids) {
		for ; ids != 0; ids >>= idBits {
			all = append(all, Holder(ids))
		}
		return all
	}
	in := inHead(chainLen(ids))
	for number := chainHead(ids); number != 0; number, in = x.blocks.blockAt(number).next, holdersPerBlock {
		all = append(all, x.blocks.blockAt(number).ids[:in]...)
	}
	return all
}

// A one is what a naive index knows of a holder.
type one struct {
	group   int
	rank    uint32
	visible bool
	chunks  map[uint64]bool
}

// An index does what maps do, whatever is swept when: with few hashes and holders, so that they meet.
func TestIndexAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{Chunks: 1 << 20, Holders: 40, Groups: 8, HoldersPerChunk: 40}
		if rapid.IntRange(0, 3).Draw(t, "tight") == 0 {
			limits.HoldersPerChunk = rapid.IntRange(1, 20).Draw(t, "of a chunk")
		}
		x := New(limits, rapid.Uint64().Draw(t, "seed"))
		model := map[Holder]*one{}
		retired := 0
		hash := rapid.Uint64Range(0, 12)
		pick := func(t *rapid.T) Holder {
			if len(model) == 0 {
				t.Skip("nobody")
			}
			return rapid.SampledFrom(slices.Sorted(maps.Keys(model))).Draw(t, "holder")
		}
		holding := func(id Holder, hash uint64) (n int) {
			for _, o := range model {
				if o.rank == model[id].rank && o.chunks[hash] {
					n++
				}
			}
			return n
		}
		times := func(id Holder, hash uint64) map[int]int { // by group
			n := map[int]int{}
			for _, o := range model {
				if o.rank == model[id].rank && o.chunks[hash] {
					n[o.group]++
				}
			}
			return n
		}
		// displaces says whether a group has a chunk so often that it has to leave a place for another one.
		displaces := func(id Holder, hash uint64) bool {
			n := times(id, hash)
			for group, has := range n {
				if group != model[id].group && has > n[model[id].group]+1 {
					return true
				}
			}
			return false
		}
		// displaced follows which holder it was: one of a group that had it most often.
		displaced := func(t *rapid.T, id Holder, hash uint64) {
			if holding(id, hash) < limits.HoldersPerChunk {
				return
			}
			n := times(id, hash)
			for other, o := range model {
				if count, _ := x.CountChunks(other); o.rank == model[id].rank && o.chunks[hash] && count < len(o.chunks) {
					if n[o.group] < slices.Max(slices.Collect(maps.Values(n))) {
						t.Fatalf("%d of group %d gives way to %d: %v", other, o.group, id, n)
					}
					delete(o.chunks, hash)
					return
				}
			}
			t.Fatalf("none of %v gave way to %d", n, id)
		}
		add := func(t *rapid.T, id Holder, h uint64) {
			want := Changed
			if model[id].chunks[h] {
				want = Unchanged
			} else if holding(id, h) >= limits.HoldersPerChunk {
				if want = Crowded; displaces(id, h) {
					want = Changed
				}
			}
			if got := x.Add(id, h); got != want {
				t.Fatalf("%d gets %d: outcome %d, want %d", id, h, got, want)
			}
			if want == Changed {
				displaced(t, id, h)
				model[id].chunks[h] = true
			}
		}
		open := func(t *rapid.T) Holder {
			o := &one{group: rapid.IntRange(0, 3).Draw(t, "group"), rank: rapid.Uint32Range(0, 1).Draw(t, "rank"),
				chunks: map[uint64]bool{}}
			id := x.OpenHolder(o.group, o.group, o.rank)
			mine := 0
			for _, other := range model {
				if other.group == o.group {
					mine++
				}
			}
			if model[id] != nil || id == 0 && mine < limits.Holders-len(model)-retired {
				t.Fatalf("Open gives %d: %d live and at most %d are retired", id, len(model), retired)
			}
			if id != 0 {
				model[id] = o
			}
			return id
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) { open(t) },
			"fleet": func(t *rapid.T) {
				first := hash.Draw(t, "first")
				for range rapid.IntRange(1, 20).Draw(t, "fleet") {
					id := open(t)
					if id == 0 {
						return
					}
					if model[id].visible = rapid.IntRange(0, 5).Draw(t, "shown") > 0; model[id].visible {
						x.ShowHolder(id)
					}
					for h := first; h < first+rapid.Uint64Range(0, 3).Draw(t, "chunks"); h++ {
						add(t, id, h)
					}
				}
			},
			"retire many": func(t *rapid.T) {
				for range min(len(model), rapid.IntRange(1, 12).Draw(t, "of them")) {
					id := pick(t)
					x.RetireHolder(id)
					delete(model, id)
					retired++
				}
			},
			"show": func(t *rapid.T) {
				id := pick(t)
				x.ShowHolder(id)
				model[id].visible = true
			},
			"add":   func(t *rapid.T) { add(t, pick(t), hash.Draw(t, "hash")) },
			"add 2": func(t *rapid.T) { add(t, pick(t), hash.Draw(t, "hash")) },
			"add all": func(t *rapid.T) {
				h := hash.Draw(t, "hash")
				for _, id := range slices.Sorted(maps.Keys(model)) {
					add(t, id, h)
				}
			},
			"add many": func(t *rapid.T) {
				id, from, n := pick(t), rapid.Uint64Range(0, 8000).Draw(t, "from"), rapid.Uint64Range(1, 6000).Draw(t, "many")
				for h := from; h < from+n; h++ {
					add(t, id, h)
				}
			},
			"remove": func(t *rapid.T) {
				id, h := pick(t), hash.Draw(t, "hash")
				if got := x.Remove(id, h); (got == Changed) != model[id].chunks[h] {
					t.Fatalf("%d loses %d: outcome %d", id, h, got)
				}
				delete(model[id].chunks, h)
			},
			"retire": func(t *rapid.T) {
				id := pick(t)
				x.RetireHolder(id)
				delete(model, id)
				retired++
			},
			"sweep": func(t *rapid.T) {
				if !x.Sweep(rapid.IntRange(1, 3000).Draw(t, "rows")) {
					retired = 0
				}
			},
			"": func(t *rapid.T) {
				sound(t, &x)
				for id, o := range model {
					sum := uint64(0)
					for h := range o.chunks {
						sum += chunkChecksum(h)
					}
					if n, s := x.CountChunks(id); n != len(o.chunks) || s != sum {
						t.Fatalf("%d has %d chunks, want %d", id, n, len(o.chunks))
					}
				}
				prefix := rapid.SliceOfN(hash, 1, 6).Draw(t, "prefix")
				if rapid.Bool().Draw(t, "in order") {
					for from := prefix[0]; len(prefix) < 70; from++ {
						prefix = append(prefix, from+1)
					}
				}
				rank, but := rapid.Uint32Range(0, 1).Draw(t, "rank"), rapid.IntRange(-1, 3).Draw(t, "but")
				want := map[Holder]int{}
				for id, o := range model {
					if !o.visible || o.group == but || o.rank != rank || !o.chunks[prefix[0]] {
						continue
					}
					for _, h := range prefix {
						if !o.chunks[h] {
							break
						}
						want[id]++
					}
				}
				got := map[Holder]int{}
				for _, hit := range x.FindPrefix(rank, prefix, but, nil) {
					got[hit.Holder] = hit.Chunks
				}
				if !maps.Equal(got, want) {
					t.Fatalf("%v have the first of %v, want %v", got, prefix, want)
				}
			},
		})
	})
}

// Whatever its size, an index takes no more bytes for a chunk than its segments promise, and those of blocks.
func TestBytesOfAChunk(t *testing.T) {
	for _, copies := range []int{1, 4, 12} {
		x := New(Limits{Chunks: 1 << 30, Holders: copies, Groups: copies + 1, HoldersPerChunk: copies}, 7)
		for range copies {
			x.OpenHolder(x.holders.used, x.holders.used, 0)
		}
		most := 31
		if copies > inlineHolders {
			most += 32
		}
		for hash := range uint64(200_000) {
			for id := range copies {
				x.Add(Holder(id+1), hash)
			}
			if f := x.Figures(); hash%997 == 0 && hash > 10_000 && f.Bytes > most*f.Rows {
				t.Fatalf("%d bytes for %d chunks at %d holders", f.Bytes, f.Rows, copies)
			}
		}
	}
}
