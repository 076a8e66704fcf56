package table

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A slab with a list behaves like a map and a slice, and dead handles stay dead.
func TestSlabAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const bound = 6
		s := NewSlab[int](bound)
		var list List
		live := map[Handle]int{}
		var order, dead []Handle
		pick := func(t *rapid.T) Handle {
			var all []Handle
			for slot := range s.Slots() {
				if h := s.At(slot); h != 0 {
					all = append(all, h)
				}
			}
			if len(all) == 0 {
				t.Skip("empty")
			}
			return rapid.SampledFrom(all).Draw(t, "handle")
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				h, v := s.Add()
				if (v == nil) != (len(live) == bound) {
					t.Fatalf("Add returned %v with %d live of %d", v, len(live), bound)
				}
				if v != nil {
					*v = rapid.Int().Draw(t, "value")
					live[h] = *v
				}
			},
			"remove": func(t *rapid.T) {
				h := pick(t)
				if slices.Contains(order, h) {
					t.Skip("listed")
				}
				s.Remove(h)
				delete(live, h)
				dead = append(dead, h)
			},
			"back": func(t *rapid.T) {
				if h := pick(t); !s.InList(h) {
					s.PushBack(&list, h)
					order = append(order, h)
				}
			},
			"front": func(t *rapid.T) {
				if h := pick(t); !s.InList(h) {
					s.PushFront(&list, h)
					order = append([]Handle{h}, order...)
				}
			},
			"unlink": func(t *rapid.T) {
				if h := pick(t); s.InList(h) {
					s.Unlink(&list, h)
					order = slices.DeleteFunc(order, func(o Handle) bool { return o == h })
				}
			},
			"": func(t *rapid.T) {
				var got []Handle
				for h := list.Front(); h != 0; h = s.Next(h) {
					got = append(got, h)
				}
				if !slices.Equal(got, order) || list.Len() != len(order) || s.Len() != len(live) {
					t.Fatalf("list %v (%d), want %v; %d live, want %d", got, list.Len(), order, s.Len(), len(live))
				}
				for h, want := range live {
					if v := s.Get(h); v == nil || *v != want {
						t.Fatalf("handle %x lost its value", h)
					}
				}
				for _, h := range dead {
					if s.Get(h) != nil {
						t.Fatalf("dead handle %x is alive again", h)
					}
				}
			},
		})
	})
}

// An index finds exactly what is in it, and equal hashes in the order in which they were added, with few hashes so that
// they collide. How much memory it had before makes no difference.
func TestIndexAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x Index
		in := map[Handle]uint64{}
		hashes := rapid.SampledFrom([]uint64{0, 1, 1 << 17, 1 << 32, 5, ^uint64(0)})
		next := Handle(1)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				hash := hashes.Draw(t, "hash")
				x.Add(hash, next)
				in[next] = hash
				next++
			},
			"remove": func(t *rapid.T) {
				h := Handle(rapid.Uint64Range(1, uint64(next)).Draw(t, "handle"))
				if hash, ok := in[h]; ok {
					x.Remove(hash, h)
					delete(in, h)
				}
			},
			"empty": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "one in ten") == 0 {
					x = x.Recycle()
					clear(in)
				}
			},
			"": func(t *rapid.T) {
				found := map[Handle]uint64{}
				for _, hash := range []uint64{0, 1, 1 << 17, 1 << 32, 5, ^uint64(0)} {
					last := Handle(0)
					for p := x.Find(hash); p.Found(); p = x.Next(p) {
						if p.Handle() <= last {
							t.Fatalf("handle %d found after %d", p.Handle(), last)
						}
						last = p.Handle()
						found[last] = hash
					}
				}
				if len(found) != len(in) || x.Len() != len(in) {
					t.Fatalf("found %d, Len %d, want %d", len(found), x.Len(), len(in))
				}
				for h, hash := range in {
					if found[h] != hash {
						t.Fatalf("handle %d found under %x, want %x", h, found[h], hash)
					}
				}
			},
		})
	})
}

// So does a compact one, which tells slots.
func TestCompactAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x Compact
		in := map[Handle]uint64{}
		hashes := rapid.SampledFrom([]uint64{0, 1, 1 << 17, 1 << 32, 5, ^uint64(0)})
		next := Handle(1)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				hash := hashes.Draw(t, "hash")
				x.Add(hash, next)
				in[next] = hash
				next++
			},
			"remove": func(t *rapid.T) {
				h := Handle(rapid.Uint64Range(1, uint64(next)).Draw(t, "handle"))
				if hash, ok := in[h]; ok {
					x.Remove(hash, h)
					delete(in, h)
				}
			},
			"empty": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "one in ten") == 0 {
					x = x.Recycle()
					clear(in)
				}
			},
			"": func(t *rapid.T) {
				found := map[Handle]uint64{}
				for _, hash := range []uint64{0, 1, 1 << 17, 1 << 32, 5, ^uint64(0)} {
					last := int32(-1)
					for p := x.Find(hash); p.Found(); p = x.Next(p) {
						if p.Slot() <= last {
							t.Fatalf("slot %d found after %d", p.Slot(), last)
						}
						last = p.Slot()
						found[Handle(last+1)] = hash
					}
				}
				if len(found) != len(in) || x.Len() != len(in) {
					t.Fatalf("found %d, Len %d, want %d", len(found), x.Len(), len(in))
				}
				for h, hash := range in {
					if found[h] != hash {
						t.Fatalf("handle %d found under %x, want %x", h, found[h], hash)
					}
				}
			},
		})
	})
}

// Equal bytes hash alike, another seed hashes them otherwise, and a longer key
// with the same prefix is another key.
func TestHash(t *testing.T) {
	a, b := []byte("m@1@0@1f@half"), []byte("m@1@0@1f@half\x00")
	if Hash(1, a) != Hash(1, slices.Clone(a)) {
		t.Error("equal keys hash differently")
	}
	if Hash(1, a) == Hash(2, a) || Hash(1, a) == Hash(1, b) {
		t.Error("the seed or the last byte does not count")
	}
}

// A free slot keeps the memory that most lives need, and not that of the largest one it had.
func TestShed(t *testing.T) {
	small, large := make([]uint64, 5, keepElements), make([]uint64, 5, keepElements+1)
	if s := TrimSlice(small); len(s) != 0 || cap(s) != keepElements {
		t.Errorf("%d of %d elements are kept", cap(s), keepElements)
	}
	if s := TrimSlice(large); s != nil {
		t.Errorf("%d elements are kept", cap(s))
	}
	if b := TrimBytes(make([]byte, keepBytes)); len(b) != 0 || cap(b) != keepBytes {
		t.Errorf("%d of %d bytes are kept", cap(b), keepBytes)
	}
	if b := TrimBytes(make([]byte, keepBytes+1)); b != nil {
		t.Errorf("%d bytes are kept", cap(b))
	}
}
