package index

// A sweep is the position in a pass over all rows in the order of their places. Rows may move meanwhile without harm:
// all rows before the position have been examined, and a retired holder is never added to a row.
type sweep struct {
	nextPlace    uint64 // first place that has not been examined
	retiredSince bool   // a holder was retired since the position was 0
}

// slotsPerRow is the number of slots whose examination costs as much as a row.
const slotsPerRow = 16

// HasRetired reports whether there is anything to sweep away.
func (x *Index) HasRetired() bool { return x.holders.chunkShare.CountOf(x.holders.retiredClass) > 0 }

// Sweep examines rows and removes the chunks of retired holders. Each block counts as a row, and empty slots count as
// a fraction of a row. Sweep reports whether work is left.
func (x *Index) Sweep(maxRows int) bool {
	for maxRows > 0 && x.HasRetired() {
		maxRows = x.sweepSegment(x.segmentOf(x.sweep.nextPlace), maxRows)
		if x.sweep.nextPlace != 0 {
			continue
		}
		if x.HasRetired() && !x.sweep.retiredSince {
			panic("BUG: a whole sweep did not find all that a retired holder had")
		}
		x.sweep.retiredSince = false
	}
	return x.HasRetired()
}

// sweepSegment continues the sweep in one segment, and returns the number of rows that are left to examine. When rows
// are removed, the rows behind them move up, including rows that are not examined in this call, until a row stands at
// the home slot.
func (x *Index) sweepSegment(s *segment, rows int) int {
	end := (x.sweep.nextPlace>>(wordBits-s.depth) + 1) << (wordBits - s.depth)
	from := s.findSlot(x.sweep.nextPlace)
	for at, to, unexamined := from, from, false; ; at++ {
		if at == len(s.slots) {
			if unexamined { // Rows at the end were moved but not examined.
				return 0
			}
			x.sweep.nextPlace = end
			return max(0, rows-len(s.slots)/slotsPerRow)
		}
		row := s.slots[at]
		switch {
		case rows > 0 && row.ids != 0:
			rows -= 1 + x.countBlocks(row.ids)
			x.sweep.nextPlace = row.place + 1
			if row.ids = x.removeRetired(row.ids); row.ids == 0 {
				s.rows--
				x.rowCount--
			}
		case rows <= 0 && (row.ids == 0 || at == to):
			return 0
		case row.ids != 0:
			unexamined = true
		}
		if s.slots[at] = (slot{}); row.ids != 0 {
			to = max(to, s.homeSlot(row.place))
			s.slots[to] = row
			to++
		}
	}
}

// countBlocks returns the number of blocks of a row.
func (x *Index) countBlocks(ids uint64) int {
	if !isChain(ids) {
		return 0
	}
	return (chainLen(ids) + holdersPerBlock - 1) / holdersPerBlock
}

func (x *Index) isRetired(id Holder) bool { return x.holders.rows[id].state == stateRetired }

// removeRetired removes the retired holders from a row. It returns the new word of the row.
func (x *Index) removeRetired(ids uint64) uint64 {
	if isChain(ids) {
		return x.removeRetiredFromChain(ids)
	}
	for lane := 0; lane < wordBits && ids>>lane != 0; {
		id := Holder(ids >> lane)
		if !x.isRetired(id) {
			lane += idBits
			continue
		}
		ids = dropLane(ids, lane)
		x.holders.dropChunk(id)
	}
	return ids
}

func (x *Index) removeRetiredFromChain(ids uint64) uint64 {
	for number := chainHead(ids); number != 0; {
		in := holdersPerBlock
		if number == chainHead(ids) {
			in = inHead(chainLen(ids))
		}
		next := x.blocks.blockAt(number).next
		for at := 0; at < in; {
			id := x.blocks.blockAt(number).ids[at]
			if !x.isRetired(id) {
				at++
				continue
			}
			first := number == chainHead(ids)
			ids = x.blocks.cutFromChain(ids, number, at)
			x.holders.dropChunk(id)
			if first {
				in-- // The last holder of this block took the position, or there is none left.
			}
		}
		number = next
	}
	return x.blocks.shortenChain(ids)
}
