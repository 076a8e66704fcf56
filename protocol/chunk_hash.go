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

// ParseChunkHash parses the hash of a key, as Key.Hash holds the hash. It reports false for a hash of more than 64
// bits, which the controller's messages cannot carry.
func ParseChunkHash(digits string) (h ChunkHash, ok bool) {
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

// ChunkHashOfKey returns the hash by which directories know the chunk with a key. For a key of the default tenant it is
// the hash in the key. For a key of another tenant it is that hash mixed with the tenant, so that no lookup of a tenant
// finds chunks of another. It reports false if the text is not a key, or if the hash has more than 64 bits.
func ChunkHashOfKey(key []byte) (ChunkHash, bool) {
	h, ok := parseHashOfKey(key)
	if tenant := TenantOf(key); ok && tenant != 0 {
		h = ChunkHash{Bits: (h.Bits ^ tenant*tenantFactor) * tenantFactor}
	}
	return h, ok
}

// tenantFactor is odd, so that chunks of one tenant with different hashes keep different hashes.
const tenantFactor = 0x9e3779b97f4a7c15

// parseHashOfKey parses the hash in the text of a key.
func parseHashOfKey(key []byte) (ChunkHash, bool) {
	for range 3 {
		_, rest, ok := bytes.Cut(key, []byte{'@'})
		if !ok {
			return ChunkHash{}, false
		}
		key = rest
	}
	digits, _, ok := bytes.Cut(key, []byte{'@'})
	if !ok || len(digits) == 0 || len(digits) > hashDigitsMax || !isHash(digits) {
		return ChunkHash{}, false
	}
	return ParseChunkHash(string(digits))
}

// hashDigitsMax is the largest number of digits, sign included, of a hash that the controller's messages can carry.
const hashDigitsMax = 17

// String returns the number in decimal.
func (h ChunkHash) String() string { return integerText(h.Bits, h.Negative) }

func (r *reader) readHash() ChunkHash {
	bits, negative := r.readInteger()
	return ChunkHash{bits, negative}
}

// readHashes appends a list to vs.
func (r *reader) readHashes(vs []ChunkHash) []ChunkHash {
	n := r.readArrayHeaderUpTo(r.lim.HashCount, "HashCount")
	for vs = slices.Grow(vs, n); n > 0 && r.ok(); n-- {
		vs = append(vs, r.readHash())
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
