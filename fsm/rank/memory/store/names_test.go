package store

import (
	"testing"

	"pgregory.net/rapid"
)

// Whatever keys come and go, each is kept as it is, and is no other. Nothing stays of those that are gone.
func TestNames(t *testing.T) {
	type name struct {
		at     int32
		digits uint64
	}
	rapid.Check(t, func(t *rapid.T) {
		n := new(names).recycle(8)
		kept := map[string]name{}
		part := rapid.SampledFrom([]string{
			"", "m", "8", "0", "a", "1f", "00ff", "FF", "-1", "half", "9c0d3e5f70112233", "19c0d3e5f70112233",
		})
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				key := part.Draw(t, "first")
				for range rapid.IntRange(0, 5).Draw(t, "parts") {
					key += "@" + part.Draw(t, "part")
				}
				if _, there := kept[key]; there || len(kept) == 8 {
					t.Skip("no room")
				}
				at, digits := n.addKey([]byte(key))
				kept[key] = name{at, digits}
			},
			"remove": func(t *rapid.T) {
				for key, x := range kept {
					n.removeKey(x.at)
					delete(kept, key)
					return
				}
			},
			"": func(t *rapid.T) {
				for key, x := range kept {
					if got := string(n.keyText(x.at, x.digits)); got != key {
						t.Fatalf("%q is kept as %q", key, got)
					}
					for other := range kept {
						if n.equalsKey(x.at, x.digits, []byte(other)) != (other == key) {
							t.Fatalf("%q is taken for %q, or not for itself", key, other)
						}
					}
				}
				if len(kept) == 0 && n.shapes.Len()+n.wholeKeys.Len() > 0 {
					t.Fatalf("%d shapes and %d keys are left of none", n.shapes.Len(), n.wholeKeys.Len())
				}
			},
		})
	})
}

// Keys of more shapes than there is room for are kept all the same, and those of one share theirs.
func TestShapesAreShared(t *testing.T) {
	n := new(names).recycle(100)
	for i := range 100 {
		n.addKey([]byte(string(rune('0'+i)) + "@1@0@1f@half"))
	}
	if n.shapes.Len() != shapesMax || n.wholeKeys.Len() != 100-shapesMax {
		t.Errorf("%d shapes and %d whole keys", n.shapes.Len(), n.wholeKeys.Len())
	}
	n = new(names).recycle(4)
	for _, key := range []string{"m@1@0@1f@half", "m@1@0@00@half", "m@1@0@ff@half"} {
		n.addKey([]byte(key))
	}
	if n.shapes.Len() != 1 || n.wholeKeys.Len() != 0 {
		t.Errorf("three keys of one shape take %d shapes and %d whole keys", n.shapes.Len(), n.wholeKeys.Len())
	}
}
