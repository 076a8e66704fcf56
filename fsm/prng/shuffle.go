package prng

// A Shuffle numbers things so that nobody who lacks its key can guess the next number: a secret order of the numbers of
// 48 bits, another one for each lane. It repeats none before all of them have been, and then goes on in another order.
// The zero value works and is no secret.
type Shuffle struct{ k0, k1 uint64 }

// ShuffleBits is how wide the numbers are.
const ShuffleBits = 48

// NewShuffle returns the shuffle of a key.
func NewShuffle(k0, k1 uint64) Shuffle { return Shuffle{k0, k1} }

// Nth is the n-th number of a lane, of at most 16 bits: below 2^48, and for numbers n of the same lane that are less
// than 2^48 apart and on the same side of its multiples never the same. It is a Feistel network of six rounds: each
// changes one half of the number by a keyed function of the other, which can be undone, so no two numbers become one.
func (s Shuffle) Nth(lane uint16, n uint64) uint64 {
	const half, mask = ShuffleBits / 2, 1<<(ShuffleBits/2) - 1
	// What n has beyond its 48 bits chooses the order, so that a lane that has run through begins another one.
	k1 := s.k1 ^ n>>ShuffleBits
	left, right := n>>half&mask, n&mask
	for round := range uint64(6) {
		left, right = right, left^prf(s.k0, k1, round<<40|uint64(lane)<<half|right)&mask
	}
	return left<<half | right
}
