package prng

// Shuffle numbers things so that the next number cannot be guessed without the key. Each lane has a secret order of all
// 48-bit numbers. A lane repeats no number before all numbers were given, and then goes on in a new order. The zero
// value works, but is not secret.
type Shuffle struct{ k0, k1 uint64 }

// ShuffleBits is the width of the numbers, in bits.
const ShuffleBits = 48

// NewShuffle returns the shuffle with the given key.
func NewShuffle(k0, k1 uint64) Shuffle { return Shuffle{k0, k1} }

// Nth returns the n-th number of a lane, which is below 2^48. A lane has at most 16 bits. Two different values of n
// between the same two multiples of 2^48 never give the same number in a lane.
//
// Nth is a Feistel network of six rounds: each round changes one half of the number by a keyed function of the other
// half. A round can be undone, so two values of n cannot give the same number.
func (s Shuffle) Nth(lane uint16, n uint64) uint64 {
	const half, mask = ShuffleBits / 2, 1<<(ShuffleBits/2) - 1
	// The bits of n beyond the lower 48 choose the order, so a lane that has given all numbers goes on in a new order.
	k1 := s.k1 ^ n>>ShuffleBits
	left, right := n>>half&mask, n&mask
	for round := range uint64(6) {
		left, right = right, left^siphash13(s.k0, k1, round<<40|uint64(lane)<<half|right)&mask
	}
	return left<<half | right
}
