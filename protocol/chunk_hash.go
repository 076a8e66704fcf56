package protocol

import (
	"bytes"
	"slices"
	"strconv"
)

// A ChunkHash is a chunk's hash as the controller's messages carry it: an integer from -2^63 to 2^64-1. LMCache hashes
// with Python's signed 64-bit hash, or with functions whose first 64 bits LMCache takes as an unsigned number; longer
// hashes cannot be sent. ChunkHashes compare with ==.
type ChunkHash struct {
	Bits     uint64 // two's complement, if Negative
	Negative bool
}

// ChunkHashOf parses the hash of a key, as Key.Hash holds the hash. It reports false for a hash of more than 64 bits,
// which the controller's messages cannot carry.
func ChunkHashOf(digits string) (h ChunkHash, ok bool) {
	if len(digits) > 0 && digits[0] == '-' {
		v, err := strconv.ParseInt(digits, 16, 64)
		return ChunkHash{uint64(v), v < 0}, err == nil
	}
	v, err := strconv.ParseUint(digits, 16, 64)
	if err != nil {
		return ChunkHash{}, false
	}
	return ChunkHash{Bits: v}, true
}

// ChunkHashOfKey parses the hash in the text of a key. It reports false if the text is not a key, or if the hash has
// more than 64 bits.
func ChunkHashOfKey(key []byte) (ChunkHash, bool) {
	for range 3 {
		_, rest, ok := bytes.Cut(key, []byte{'@'})
		if !ok {
			return ChunkHash{}, false
		}
		key = rest
	}
	digits, _, ok := bytes.Cut(key, []byte{'@'})
	if !ok || len(digits) == 0 || len(digits) > hashDigitsMost || !validHash(digits) {
		return ChunkHash{}, false
	}
	return ChunkHashOf(string(digits))
}

// hashDigitsMost is the largest number of digits, sign included, of a hash that the controller's messages can carry.
const hashDigitsMost = 17

// String returns the number in decimal.
func (h ChunkHash) String() string { return integerText(h.Bits, h.Negative) }

func (r *reader) hash() ChunkHash {
	bits, negative := r.integer()
	return ChunkHash{bits, negative}
}

// hashes appends a list to vs.
func (r *reader) hashes(vs []ChunkHash) []ChunkHash {
	n := r.arrayUpTo(r.lim.HashCount, "HashCount")
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.hash())
	}
	return vs
}

func appendHash(b []byte, h ChunkHash) []byte {
	if h.Negative {
		return appendInt(b, int64(h.Bits))
	}
	return appendUint(b, h.Bits)
}

func appendHashes(b []byte, vs []ChunkHash) []byte {
	b = appendArrayHeader(b, len(vs))
	for _, v := range vs {
		b = appendHash(b, v)
	}
	return b
}
