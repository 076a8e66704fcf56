package table

import "math/bits"

// mixHash spreads a hash over the bits that choose the part and the cell of an index.
func mixHash(h uint64) uint64 {
	h ^= h >> 32
	h *= 0x9E3779B97F4A7C15
	return h >> 17
}

// Hash returns a hash of b that depends on seed. A peer that does not know the seed cannot choose keys that collide.
func Hash(seed uint64, b []byte) uint64 {
	h := seed ^ uint64(len(b))*0x9E3779B97F4A7C15
	all := b
	for len(b) > 8 {
		h = foldProduct(h ^ loadUint64(b))
		b = b[8:]
	}
	last := uint64(0)
	if len(all) >= 8 { // The rest of b, from a single load of the last eight bytes.
		last = loadUint64(all[len(all)-8:]) >> (8 * (8 - len(b)))
	} else {
		for i, c := range b {
			last |= uint64(c) << (8 * i)
		}
	}
	return foldProduct(foldProduct(h^last) ^ seed)
}

// loadUint64 returns the first eight bytes of b as a little-endian number.
func loadUint64(b []byte) uint64 {
	_ = b[7] // a single bounds check, and a single load
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

// foldProduct mixes h by a full 128-bit product and combines both halves.
func foldProduct(h uint64) uint64 {
	hi, lo := bits.Mul64(h^0xD1B54A32D192ED03, 0xBF58476D1CE4E5B9)
	return hi ^ lo
}
