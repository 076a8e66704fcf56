package index

// The holders of a row are a word: four numbers of 16 bits, the first ones in use and the others 0; or, where the
// lowest is many, how many there are and the number of the first block.

const (
	many    = 0xFFFF
	inSlot  = 4
	idBits  = 16
	idMask  = 1<<idBits - 1
	perWord = 64
)

func chained(ids uint64) bool         { return ids&idMask == many }
func chainLen(ids uint64) int         { return int(ids >> idBits & idMask) }
func chainHead(ids uint64) uint32     { return uint32(ids >> 32) }
func chain(n int, head uint32) uint64 { return many | uint64(n)<<idBits | uint64(head)<<32 }

// inHead is how many of n holders are in the first block.
func inHead(n int) int { return (n-1)%blockIDs + 1 }

// An answer is what came of adding or removing a holder.
type answer uint8

const (
	changed answer = iota
	already        // it was so
	crowded        // the row has as many holders as it may
)

// join adds a holder to a row of at most so many.
func (b *blocks) join(ids uint64, id Holder, most int) (uint64, answer) {
	if !chained(ids) {
		for lane := 0; lane < perWord; lane += idBits {
			switch Holder(ids >> lane) {
			case id:
				return ids, already
			case 0:
				if lane/idBits >= most {
					return ids, crowded
				}
				return ids | uint64(id)<<lane, changed
			}
		}
		if inSlot >= most {
			return ids, crowded
		}
		n := b.take()
		for lane := range inSlot {
			b.at(n).ids[lane] = Holder(ids >> (lane * idBits))
		}
		b.at(n).ids[inSlot] = id
		return chain(inSlot+1, n), changed
	}
	if number, _ := b.find(ids, id); number != 0 {
		return ids, already
	}
	n, head := chainLen(ids), chainHead(ids)
	if n >= most {
		return ids, crowded
	}
	if n%blockIDs == 0 {
		first := b.take()
		b.at(first).next = head
		head = first
	}
	b.at(head).ids[n%blockIDs] = id
	return chain(n+1, head), changed
}

// find says in which block of a chain a holder is, and where there; 0: in none.
func (b *blocks) find(ids uint64, id Holder) (number uint32, at int) {
	in := inHead(chainLen(ids))
	for number = chainHead(ids); number != 0; number, in = b.at(number).next, blockIDs {
		for at, other := range b.at(number).ids[:in] {
			if other == id {
				return number, at
			}
		}
	}
	return 0, 0
}

// holds says whether a holder is in a row.
func (b *blocks) holds(ids uint64, id Holder) bool {
	if chained(ids) {
		number, _ := b.find(ids, id)
		return number != 0
	}
	for ; ids != 0; ids >>= idBits {
		if Holder(ids) == id {
			return true
		}
	}
	return false
}

// leave takes a holder out of a row.
func (b *blocks) leave(ids uint64, id Holder) (uint64, answer) {
	if !chained(ids) {
		for lane := 0; lane < perWord; lane += idBits {
			if Holder(ids>>lane) == id {
				return drop(ids, lane), changed
			}
		}
		return ids, already
	}
	number, at := b.find(ids, id)
	if number == 0 {
		return ids, already
	}
	return b.short(b.cut(ids, number, at)), changed
}

// drop takes the number at a lane out, and moves those above it down.
func drop(ids uint64, lane int) uint64 {
	below := uint64(1)<<lane - 1
	return ids&below | ids>>idBits&^below
}

// cut takes one holder out of a chain: the last one of the first block gets its place.
func (b *blocks) cut(ids uint64, number uint32, at int) uint64 {
	n, head := chainLen(ids), chainHead(ids)
	first := b.at(head)
	last := inHead(n) - 1
	b.at(number).ids[at] = first.ids[last]
	if first.ids[last] = 0; last == 0 {
		next := first.next
		b.give(head)
		head = next
	}
	return chain(n-1, head)
}

// short is a chain, or if four are left or fewer, what they are in a slot.
func (b *blocks) short(ids uint64) uint64 {
	n, head := chainLen(ids), chainHead(ids)
	if n > inSlot {
		return ids
	}
	word := uint64(0)
	if head != 0 { // The last cut may have given it.
		for lane, id := range b.at(head).ids[:n] {
			word |= uint64(id) << (lane * idBits)
		}
		b.give(head)
	}
	return word
}
