package index

// The holders of a row are stored in a word. Up to four holders are stored as four numbers of 16 bits, followed by
// zeros. For more holders the lowest number is many, the second is the number of holders, and the upper half of the
// word is the number of the first block.

const (
	chainMark     = 0xFFFF
	inlineHolders = 4
	idBits        = 16
	idMask        = 1<<idBits - 1
	wordBits      = 64
)

func isChain(ids uint64) bool             { return ids&idMask == chainMark }
func chainLen(ids uint64) int             { return int(ids >> idBits & idMask) }
func chainHead(ids uint64) uint32         { return uint32(ids >> 32) }
func makeChain(n int, head uint32) uint64 { return chainMark | uint64(n)<<idBits | uint64(head)<<32 }

// inHead returns how many of n holders are in the first block.
func inHead(n int) int { return (n-1)%holdersPerBlock + 1 }

// A rowOutcome is the result of adding a holder to a row or removing a holder.
type rowOutcome uint8

const (
	rowChanged   rowOutcome = iota
	rowUnchanged            // nothing had to be changed
	rowCrowded              // the row has as many holders as it may have
)

// addHolder adds a holder to a row that may have at most limit holders. It returns the new word of the row.
func (b *blocks) addHolder(ids uint64, id Holder, limit int) (uint64, rowOutcome) {
	if !isChain(ids) {
		for lane := 0; lane < wordBits; lane += idBits {
			switch Holder(ids >> lane) {
			case id:
				return ids, rowUnchanged
			case 0:
				if lane/idBits >= limit {
					return ids, rowCrowded
				}
				return ids | uint64(id)<<lane, rowChanged
			}
		}
		if inlineHolders >= limit {
			return ids, rowCrowded
		}
		n := b.allocBlock()
		for lane := range inlineHolders {
			b.blockAt(n).ids[lane] = Holder(ids >> (lane * idBits))
		}
		b.blockAt(n).ids[inlineHolders] = id
		return makeChain(inlineHolders+1, n), rowChanged
	}
	if number, _ := b.findHolder(ids, id); number != 0 {
		return ids, rowUnchanged
	}
	n, head := chainLen(ids), chainHead(ids)
	if n >= limit {
		return ids, rowCrowded
	}
	if n%holdersPerBlock == 0 {
		first := b.allocBlock()
		b.blockAt(first).next = head
		head = first
	}
	b.blockAt(head).ids[n%holdersPerBlock] = id
	return makeChain(n+1, head), rowChanged
}

// findHolder returns the block of a chain that contains a holder, and the position in the block; number is 0 if none
// does.
func (b *blocks) findHolder(ids uint64, id Holder) (number uint32, at int) {
	in := inHead(chainLen(ids))
	for number = chainHead(ids); number != 0; number, in = b.blockAt(number).next, holdersPerBlock {
		for at, other := range b.blockAt(number).ids[:in] {
			if other == id {
				return number, at
			}
		}
	}
	return 0, 0
}

// hasHolder reports whether a row contains a holder.
func (b *blocks) hasHolder(ids uint64, id Holder) bool {
	if isChain(ids) {
		number, _ := b.findHolder(ids, id)
		return number != 0
	}
	for ; ids != 0; ids >>= idBits {
		if Holder(ids) == id {
			return true
		}
	}
	return false
}

// removeHolder removes a holder from a row. It returns the new word of the row.
func (b *blocks) removeHolder(ids uint64, id Holder) (uint64, rowOutcome) {
	if !isChain(ids) {
		for lane := 0; lane < wordBits; lane += idBits {
			if Holder(ids>>lane) == id {
				return dropLane(ids, lane), rowChanged
			}
		}
		return ids, rowUnchanged
	}
	number, at := b.findHolder(ids, id)
	if number == 0 {
		return ids, rowUnchanged
	}
	return b.shortenChain(b.cutFromChain(ids, number, at)), rowChanged
}

// dropLane removes the number at a lane, and moves the numbers above it down.
func dropLane(ids uint64, lane int) uint64 {
	below := uint64(1)<<lane - 1
	return ids&below | ids>>idBits&^below
}

// cutFromChain removes a holder from a chain. The last holder of the first block takes the free position.
func (b *blocks) cutFromChain(ids uint64, number uint32, at int) uint64 {
	n, head := chainLen(ids), chainHead(ids)
	first := b.blockAt(head)
	last := inHead(n) - 1
	b.blockAt(number).ids[at] = first.ids[last]
	if first.ids[last] = 0; last == 0 {
		next := first.next
		b.freeBlock(head)
		head = next
	}
	return makeChain(n-1, head)
}

// shortenChain returns the chain unchanged if more than four holders are left. Otherwise short converts the chain to a
// word without blocks.
func (b *blocks) shortenChain(ids uint64) uint64 {
	n, head := chainLen(ids), chainHead(ids)
	if n > inlineHolders {
		return ids
	}
	word := uint64(0)
	if head != 0 { // Otherwise the last cut has freed the block.
		for lane, id := range b.blockAt(head).ids[:n] {
			word |= uint64(id) << (lane * idBits)
		}
		b.freeBlock(head)
	}
	return word
}
