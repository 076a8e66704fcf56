package index

import (
	"math/bits"

	"github.com/kvferry/kvferry/fsm/prng"
)

// A placeCipher encrypts a hash and a rank to the place of their row: a keyed permutation of the 64-bit numbers. It is
// a Feistel network, in which each round changes a half by a keyed function of the unchanged half, so that the round
// could be inverted. Therefore two hashes of the same rank never have the same place. Hashes of two ranks may have the
// same place with a probability of 2^-64; then an answer is wrong, which costs a cache miss.
type placeCipher struct {
	keys       [4]uint64
	rankSecret uint64
}

func newPlaceCipher(seed uint64) placeCipher {
	from := prng.New(seed)
	h := placeCipher{rankSecret: from.Next()}
	for i := range h.keys {
		h.keys[i] = from.Next()
	}
	return h
}

func foldProduct(x uint64) uint64 {
	hi, lo := bits.Mul64(x, 0x9E3779B97F4A7C15)
	return hi ^ lo
}

// rankKey returns the key of a rank, for hide.
func (k *placeCipher) rankKey(rank uint32) uint64 {
	hi, lo := bits.Mul64(k.rankSecret^uint64(rank)<<16, 0xD1B54A32D192ED03)
	return (hi ^ lo) * 0xBF58476D1CE4E5B9
}

// placeOf returns the place of a hash. The argument key is a key of the rank.
func (k *placeCipher) placeOf(hash, key uint64) uint64 {
	hash ^= key
	l, r := uint32(hash>>32), uint32(hash)
	l ^= uint32(foldProduct(uint64(r) ^ k.keys[0]))
	r ^= uint32(foldProduct(uint64(l) ^ k.keys[1]))
	l ^= uint32(foldProduct(uint64(r) ^ k.keys[2]))
	r ^= uint32(foldProduct(uint64(l) ^ k.keys[3]))
	return uint64(l)<<32 | uint64(r)
}

// chunkChecksum returns the contribution of a chunk to the checksum of a holder. The function is not keyed, so that the
// checksums of several directories can be compared.
func chunkChecksum(hash uint64) uint64 {
	s := prng.New(hash)
	return s.Next()
}
