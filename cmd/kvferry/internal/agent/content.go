package agent

import (
	"encoding/binary"
	"hash/fnv"
)

// The content of a chunk is a function of its key alone, so that any process can make the content and any other process
// can check it. Every word of the content differs from every other word, so that the check finds misplaced bytes as
// well as wrong bytes.

const (
	weyl  = 0x9e3779b97f4a7c15
	mixer = 0xbf58476d1ce4e5b9
)

// contentSeed hashes a key to 64 bits.
func contentSeed(key string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // A hash never fails.
	return h.Sum64()
}

func contentWord(seed, index uint64) uint64 {
	x := (seed + index) * weyl
	x ^= x >> 32
	return x * mixer
}

// FillContent fills b with the content of key.
func FillContent(b []byte, key string) {
	seed := contentSeed(key)
	whole := len(b) &^ 7
	for i := 0; i < whole; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], contentWord(seed, uint64(i)))
	}
	var tail [8]byte
	binary.LittleEndian.PutUint64(tail[:], contentWord(seed, uint64(whole)))
	copy(b[whole:], tail[:])
}

// CountWrong counts the bytes of b that are not the content of key.
func CountWrong(b []byte, key string) int {
	seed := contentSeed(key)
	wrong := 0
	whole := len(b) &^ 7
	for i := 0; i < whole; i += 8 {
		if diff := binary.LittleEndian.Uint64(b[i:]) ^ contentWord(seed, uint64(i)); diff != 0 {
			for ; diff != 0; diff >>= 8 {
				if diff&0xff != 0 {
					wrong++
				}
			}
		}
	}
	for i, last := whole, contentWord(seed, uint64(whole)); i < len(b); i++ {
		if b[i] != byte(last>>(8*(i-whole))) {
			wrong++
		}
	}
	return wrong
}
