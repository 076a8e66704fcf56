package index

import (
	"math/bits"

	"github.com/kvferry/kvferry/fsm/prng"
)

// A hider encrypts a hash and a rank to the place of their row: a keyed permutation of the 64-bit numbers. It is a
// Feistel network, in which each round changes a half by a keyed function of the unchanged half, so that the round
// could be inverted. Therefore two hashes of the same rank never have the same place. Hashes of two ranks may have
// the same place with a probability of 2^-64; then an answer is wrong, which costs a cache miss.
type hider struct {
	keys [4]uint64
	rank uint64
}

func newHider(seed uint64) hider {
	from := prng.New(seed)
	h := hider{rank: from.Next()}
	for i := range h.keys {
		h.keys[i] = from.Next()
	}
	return h
}

func fold(x uint64) uint64 {
	hi, lo := bits.Mul64(x, 0x9E3779B97F4A7C15)
	return hi ^ lo
}

// of returns the key of a rank, for hide.
func (k *hider) of(rank uint32) uint64 {
	hi, lo := bits.Mul64(k.rank^uint64(rank)<<16, 0xD1B54A32D192ED03)
	return (hi ^ lo) * 0xBF58476D1CE4E5B9
}

// hide returns the place of a hash. The argument rank is a key that of returned.
func (k *hider) hide(hash, rank uint64) uint64 {
	hash ^= rank
	l, r := uint32(hash>>32), uint32(hash)
	l ^= uint32(fold(uint64(r) ^ k.keys[0]))
	r ^= uint32(fold(uint64(l) ^ k.keys[1]))
	l ^= uint32(fold(uint64(r) ^ k.keys[2]))
	r ^= uint32(fold(uint64(l) ^ k.keys[3]))
	return uint64(l)<<32 | uint64(r)
}

// sumOf returns the contribution of a chunk to the checksum of a holder. The function is not keyed, so that the
// checksums of several directories can be compared.
func sumOf(hash uint64) uint64 {
	s := prng.New(hash)
	return s.Next()
}
