package table

import "math/bits"

// Index finds handles by hash: an open-addressing table. Equal hashes may stand
// for different keys, so the caller compares:
//
//	for p := x.Seek(hash); p.Found(); p = x.Next(p) {
//	    if slab.Get(p.Handle()).key == key { ... }
//	}
//
// Entries with the same hash are found in the order in which they were added. The index must not be changed between
// Seek and Next.
type Index struct {
	cells []bucket // a power of two, at most half full
	n     int
}

// Emptied returns an index without entries, in the memory of x, which is not used any more. How much that is makes no
// difference that anybody can see.
func (x *Index) Emptied() Index {
	clear(x.cells)
	return Index{cells: x.cells}
}

type bucket struct {
	hash uint64
	h    Handle
}

// Probe is a position in an Index.
type Probe struct {
	hash uint64
	pos  int
	h    Handle
}

// Found says whether the probe stands on an entry with its hash.
func (p Probe) Found() bool { return p.h != 0 }

// Handle is the entry's handle.
func (p Probe) Handle() Handle { return p.h }

// Seek finds the first entry with this hash.
func (x *Index) Seek(hash uint64) Probe {
	if x.n == 0 {
		return Probe{}
	}
	return x.scan(hash, int(mix(hash))&(len(x.cells)-1))
}

// Next finds the next entry with the same hash.
func (x *Index) Next(p Probe) Probe { return x.scan(p.hash, (p.pos+1)&(len(x.cells)-1)) }

func (x *Index) scan(hash uint64, pos int) Probe {
	for ; x.cells[pos].h != 0; pos = (pos + 1) & (len(x.cells) - 1) {
		if x.cells[pos].hash == hash {
			return Probe{hash: hash, pos: pos, h: x.cells[pos].h}
		}
	}
	return Probe{}
}

// Len is the number of entries.
func (x *Index) Len() int { return x.n }

// Add inserts an entry.
func (x *Index) Add(hash uint64, h Handle) {
	if 2*(x.n+1) > len(x.cells) {
		x.grow()
	}
	x.put(bucket{hash, h})
	x.n++
}

func (x *Index) put(b bucket) {
	pos := int(mix(b.hash)) & (len(x.cells) - 1)
	for x.cells[pos].h != 0 {
		pos = (pos + 1) & (len(x.cells) - 1)
	}
	x.cells[pos] = b
}

func (x *Index) grow() {
	old := x.cells
	x.cells = make([]bucket, max(16, 2*len(old)))
	from := 0
	for from < len(old) && old[from].h != 0 {
		from++ // Behind a gap, so that entries which go on at the beginning come after those at the end.
	}
	for i := range old {
		if b := old[(from+i)&(len(old)-1)]; b.h != 0 {
			x.put(b)
		}
	}
}

// Remove takes out the entry, which must be there.
func (x *Index) Remove(hash uint64, h Handle) {
	mask := len(x.cells) - 1
	pos := int(mix(hash)) & mask
	for x.cells[pos].h != h || x.cells[pos].hash != hash {
		if x.cells[pos].h == 0 {
			panic("BUG: removed from an index twice")
		}
		pos = (pos + 1) & mask
	}
	x.n--
	// Close the gap, so that no probe ends too early and no tombstone remains.
	for next := (pos + 1) & mask; x.cells[next].h != 0; next = (next + 1) & mask {
		home := int(mix(x.cells[next].hash)) & mask
		if (next-home)&mask >= (next-pos)&mask {
			x.cells[pos] = x.cells[next]
			pos = next
		}
	}
	x.cells[pos] = bucket{}
}

func mix(h uint64) uint64 {
	h ^= h >> 32
	h *= 0x9E3779B97F4A7C15
	return h >> 17
}

// Hash returns a hash of b that depends on seed, so that a peer who does not know
// the seed cannot choose keys that collide.
func Hash(seed uint64, b []byte) uint64 {
	h := seed ^ uint64(len(b))*0x9E3779B97F4A7C15
	all := b
	for len(b) > 8 {
		h = fold(h ^ word(b))
		b = b[8:]
	}
	last := uint64(0)
	if len(all) >= 8 { // What is left, out of one load of the last eight.
		last = word(all[len(all)-8:]) >> (8 * (8 - len(b)))
	} else {
		for i, c := range b {
			last |= uint64(c) << (8 * i)
		}
	}
	return fold(fold(h^last) ^ seed)
}

func word(b []byte) uint64 {
	_ = b[7] // one check of the bounds, and one load
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

// fold mixes by a full product, both halves of which matter.
func fold(h uint64) uint64 {
	hi, lo := bits.Mul64(h^0xD1B54A32D192ED03, 0xBF58476D1CE4E5B9)
	return hi ^ lo
}
