package table

import "math/bits"

// An index of many entries is in parts, each a table of its own. With so many entries for each part on average, one of
// them, in turn, is split in two: by one bit more of the hash. So parts differ by at most one bit, the number of parts
// says where a hash belongs, and those with the same hash stay together, in their order.
const perPart = 160

// partOf is the part, of so many, to which the bits of a hash belong that say nothing about places within a part.
func partOf(of uint64, parts int) int {
	top := uint64(1) << bits.Len(uint(parts-1)) >> 1
	n := of & (2*top - 1)
	if n >= uint64(parts) {
		n &^= top
	}
	return int(n)
}

// splits is the part that is split when one with this number is made.
func splits(number int) int { return number &^ (1 << (bits.Len(uint(number)) - 1)) }
