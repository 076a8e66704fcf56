package index

// The holders of a row are stored in a word. Up to four holders are stored as four numbers of 16 bits, followed by
// zeros. For more holders the lowest number is many, the second is the number of holders, and the upper half of the
// word is the number of the first block.

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

// inHead returns how many of n holders are in the first block.
func inHead(n int) int { return (n-1)%blockIDs + 1 }

// An answer is the result of adding a holder to a row or removing a holder.
type answer uint8

const (
	changed answer = iota
	already        // nothing had to be changed
	crowded        // the row has as many holders as it may have
)

// join adds a holder to a row that may have at most most holders. It returns the new word of the row.
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

// find returns the block of a chain that contains a holder, and the position in the block; number is 0 if none does.
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

// holds reports whether a row contains a holder.
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

// leave removes a holder from a row. It returns the new word of the row.
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

// drop removes the number at a lane, and moves the numbers above it down.
func drop(ids uint64, lane int) uint64 {
	below := uint64(1)<<lane - 1
	return ids&below | ids>>idBits&^below
}

// cut removes a holder from a chain. The last holder of the first block takes the free position.
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

// short returns the chain unchanged if more than four holders are left. Otherwise short converts the chain to a word
// without blocks.
func (b *blocks) short(ids uint64) uint64 {
	n, head := chainLen(ids), chainHead(ids)
	if n > inSlot {
		return ids
	}
	word := uint64(0)
	if head != 0 { // Otherwise the last cut has freed the block.
		for lane, id := range b.at(head).ids[:n] {
			word |= uint64(id) << (lane * idBits)
		}
		b.give(head)
	}
	return word
}
