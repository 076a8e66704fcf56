package prng

import "math/bits"

// siphash13 is SipHash-1-3 of a single word: a pseudorandom function that takes a few nanoseconds. Without the key the
// results cannot be told from random numbers.
//
// Source: J.-P. Aumasson, D. J. Bernstein, SipHash: a fast short-input PRF. One round for the message and three rounds
// to finish is the form that hash tables use against attackers.
func siphash13(k0, k1, word uint64) uint64 {
	v0, v1 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d
	v2, v3 := k0^0x6c7967656e657261, k1^0x7465646279746573
	const length = 8 << 56 // The last word holds the number of bytes of the message.
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3^word)
	v0 ^= word
	v0, v1, v2, v3 = sipRound(v0, v1, v2, v3^length)
	v0 ^= length
	v2 ^= 0xff
	for range 3 {
		v0, v1, v2, v3 = sipRound(v0, v1, v2, v3)
	}
	return v0 ^ v1 ^ v2 ^ v3
}

// sipRound is a round of SipHash.
func sipRound(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v2 += v3
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v1
	v0 += v3
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
