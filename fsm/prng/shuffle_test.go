package prng

import (
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

// The key 00..0f and the message 00..07, by an implementation that gives the vectors published with SipHash-2-4.
func TestPRFIsSipHash(t *testing.T) {
	if got := siphash13(0x0706050403020100, 0x0f0e0d0c0b0a0908, 0x0706050403020100); got != 0x369095118d299a8e {
		t.Errorf("%#x", got)
	}
}

// No two numbers of a lane become one, also where they pass 2^24, which is where the halves carry.
func TestShuffleRepeatsNothing(t *testing.T) {
	s := NewShuffle(1, 2)
	for _, from := range []uint64{0, 1<<24 - 2000, 1<<48 - 4000} {
		seen := map[uint64]bool{}
		for n := from; n < from+4000; n++ {
			x := s.Nth(7, n)
			if x >= 1<<ShuffleBits {
				t.Fatalf("number %d is %#x", n, x)
			}
			if seen[x] {
				t.Fatalf("number %d repeats %#x", n, x)
			}
			seen[x] = true
		}
	}
}

// Every lane, every key and every round through 2^48 has an order of its own, and neighbours have nothing in common.
func TestShuffleHides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewShuffle(rapid.Uint64().Draw(t, "k0"), rapid.Uint64().Draw(t, "k1"))
		lane, n := rapid.Uint16().Draw(t, "lane"), rapid.Uint64Range(0, 1<<48-2).Draw(t, "n")
		same := 0
		for _, other := range []uint64{
			NewShuffle(s.k0^1, s.k1).Nth(lane, n), NewShuffle(s.k0, s.k1^1<<60).Nth(lane, n), s.Nth(lane^1, n),
			s.Nth(lane, n+1<<48),
		} {
			if other == s.Nth(lane, n) {
				same++
			}
		}
		if same > 0 {
			t.Errorf("%d of 4 are the same", same)
		}
	})
	flips := 0
	s := NewShuffle(3, 4)
	for n := range uint64(1000) {
		flips += bits.OnesCount64(s.Nth(0, n) ^ s.Nth(0, n+1))
	}
	if mean := float64(flips) / 1000; mean < 23 || mean > 25 {
		t.Errorf("neighbours differ in %.2f bits of %d", mean, ShuffleBits)
	}
}
