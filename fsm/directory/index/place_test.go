package index

import (
	"testing"

	"pgregory.net/rapid"
)

// No two hashes of a rank have one place; each seed and each rank has places of its own; and hashes that follow each
// other, or differ in one bit, lie in segments that have nothing to do with each other.
func TestPlaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed, rank := rapid.Uint64().Draw(t, "seed"), rapid.Uint32Range(0, 1<<16).Draw(t, "rank")
		h := newPlaceCipher(seed)
		other := newPlaceCipher(seed + 1)
		hash := rapid.Uint64().Draw(t, "hash")
		if p := h.placeOf(hash, h.rankKey(rank)); p == h.placeOf(hash, h.rankKey(rank^1)) || p == other.placeOf(hash, other.rankKey(rank)) {
			t.Fatalf("%x of rank %d lies at %x for others too", hash, rank, p)
		}
		const many, segments = 4096, 64
		for name, next := range map[string]func(n uint64) uint64{
			"in a row":        func(n uint64) uint64 { return hash + n },
			"in upper bits":   func(n uint64) uint64 { return hash ^ n<<52 },
			"in middle bits":  func(n uint64) uint64 { return hash ^ n<<26 },
			"in even numbers": func(n uint64) uint64 { return n << 16 * 0x10001 },
		} {
			seen, of := map[uint64]bool{}, [segments]int{}
			for n := range uint64(many) {
				place := h.placeOf(next(n), h.rankKey(rank))
				seen[place] = true
				of[place/(1<<64/segments)]++
			}
			if len(seen) != many {
				t.Fatalf("%s: %d places for %d hashes", name, len(seen), many)
			}
			for segment, n := range of { // 64 are expected, and 8 is what chance makes of it.
				if n < 16 || n > 112 {
					t.Fatalf("%s: %d of %d lie in segment %d of %d", name, n, many, segment, segments)
				}
			}
		}
	})
}
