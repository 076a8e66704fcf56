package agent

import (
	"encoding/binary"
	"hash/fnv"
)

// Content of a chunk follows from its key and nothing else, so any process can make it and any other
// can check it. Every word differs from every other, so that misplaced bytes show as well as wrong
// ones.

const (
	weyl  = 0x9e3779b97f4a7c15
	mixer = 0xbf58476d1ce4e5b9
)

// contentSeed spreads a key over 64 bits.
func contentSeed(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // A hash never fails.
	return h.Sum64()
}

func word(seed, index uint64) uint64 {
	x := (seed + index) * weyl
	x ^= x >> 32
	return x * mixer
}

// Fill writes the content of key.
func Fill(b []byte, key string) {
	seed := contentSeed(key)
	whole := len(b) &^ 7
	for i := 0; i < whole; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], word(seed, uint64(i)))
	}
	var tail [8]byte
	binary.LittleEndian.PutUint64(tail[:], word(seed, uint64(whole)))
	copy(b[whole:], tail[:])
}

// Wrong counts the bytes of b that are not the content of key.
func Wrong(b []byte, key string) int {
	seed := contentSeed(key)
	wrong := 0
	whole := len(b) &^ 7
	for i := 0; i < whole; i += 8 {
		if diff := binary.LittleEndian.Uint64(b[i:]) ^ word(seed, uint64(i)); diff != 0 {
			for ; diff != 0; diff >>= 8 {
				if diff&0xff != 0 {
					wrong++
				}
			}
		}
	}
	for i, last := whole, word(seed, uint64(whole)); i < len(b); i++ {
		if b[i] != byte(last>>(8*(i-whole))) {
			wrong++
		}
	}
	return wrong
}
