package table

import "math/bits"

// entriesPerPart is the average number of entries of a part above which a part is added.
//
// An index with many entries consists of parts, each of which is a table of its own. A part is added by splitting a
// part, in turn, by a further bit of the hash. So the parts differ by at most one bit, the number of parts determines
// the part of a hash, and entries with the same hash stay in the same part, in their order. Example: an index with
// three parts has the parts 0, 1 and 2; adding part 3 splits part 1, because the part numbers 1 and 3 differ in their
// highest bit only.
const entriesPerPart = 160

// partOf returns the number of the part, out of parts parts, in which a hash belongs. hashBits holds the bits of the
// hash that do not determine the cell within a part.
func partOf(hashBits uint64, parts int) int {
	top := uint64(1) << bits.Len(uint(parts-1)) >> 1
	n := hashBits & (2*top - 1)
	if n >= uint64(parts) {
		n &^= top
	}
	return int(n)
}

// partToSplit returns the part that is split when the part with this number is added.
func partToSplit(number int) int { return number &^ (1 << (bits.Len(uint(number)) - 1)) }
