package index

// A sweep is the position in a pass over all rows in the order of their places. Rows may move meanwhile without harm:
// all rows before the position have been examined, and a retired holder is never added to a row.
type sweep struct {
	at    uint64 // first place that has not been examined
	again bool   // a holder was retired since the position was 0
}

// looks is the number of slots whose examination costs as much as a row.
const looks = 16

// Retired reports whether there is anything to sweep away.
func (x *Index) Retired() bool { return x.holders.share.Of(x.holders.gone) > 0 }

// Sweep examines rows and removes the chunks of retired holders. Each block counts as a row, and empty slots count as
// a fraction of a row. Sweep reports whether work is left.
func (x *Index) Sweep(rows int) bool {
	for rows > 0 && x.Retired() {
		rows = x.sweepOne(x.segmentOf(x.sweep.at), rows)
		if x.sweep.at != 0 {
			continue
		}
		if x.Retired() && !x.sweep.again {
			panic("BUG: a whole sweep did not find all that a retired holder had")
		}
		x.sweep.again = false
	}
	return x.Retired()
}

// sweepOne continues the sweep in one segment, and returns the number of rows that are left to examine. When rows are
// removed, the rows behind them move up, including rows that are not examined in this call, until a row stands at the
// home slot.
func (x *Index) sweepOne(s *segment, rows int) int {
	end := (x.sweep.at>>(perWord-s.depth) + 1) << (perWord - s.depth)
	from := s.seek(x.sweep.at)
	for at, to, left := from, from, false; ; at++ {
		if at == len(s.slots) {
			if left { // Rows at the end were moved but not examined.
				return 0
			}
			x.sweep.at = end
			return max(0, rows-len(s.slots)/looks)
		}
		row := s.slots[at]
		switch {
		case rows > 0 && row.ids != 0:
			rows -= 1 + x.blocksOf(row.ids)
			x.sweep.at = row.place + 1
			if row.ids = x.sift(row.ids); row.ids == 0 {
				s.rows--
				x.rows--
			}
		case rows <= 0 && (row.ids == 0 || at == to):
			return 0
		case row.ids != 0:
			left = true
		}
		if s.slots[at] = (slot{}); row.ids != 0 {
			to = max(to, s.home(row.place))
			s.slots[to] = row
			to++
		}
	}
}

// blocksOf returns the number of blocks of a row.
func (x *Index) blocksOf(ids uint64) int {
	if !chained(ids) {
		return 0
	}
	return (chainLen(ids) + blockIDs - 1) / blockIDs
}

func (x *Index) retired(id Holder) bool { return x.holders.rows[id].state == retired }

// sift removes the retired holders from a row. It returns the new word of the row.
func (x *Index) sift(ids uint64) uint64 {
	if chained(ids) {
		return x.siftChain(ids)
	}
	for lane := 0; lane < perWord && ids>>lane != 0; {
		id := Holder(ids >> lane)
		if !x.retired(id) {
			lane += idBits
			continue
		}
		ids = drop(ids, lane)
		x.holders.lose(id)
	}
	return ids
}

func (x *Index) siftChain(ids uint64) uint64 {
	for number := chainHead(ids); number != 0; {
		in := blockIDs
		if number == chainHead(ids) {
			in = inHead(chainLen(ids))
		}
		next := x.blocks.at(number).next
		for at := 0; at < in; {
			id := x.blocks.at(number).ids[at]
			if !x.retired(id) {
				at++
				continue
			}
			first := number == chainHead(ids)
			ids = x.blocks.cut(ids, number, at)
			x.holders.lose(id)
			if first {
				in-- // The last holder of this block took the position, or there is none left.
			}
		}
		number = next
	}
	return x.blocks.short(ids)
}
