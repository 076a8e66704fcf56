package index

// A sweep goes through all rows in the order of their places, so it does not matter which of them move meanwhile: what
// is before it was looked at, and nobody who is retired comes to a row.
type sweep struct {
	at    uint64 // the first place that was not looked at
	again bool   // somebody was retired since it was at 0
}

// looks are as many slots as cost what one row does.
const looks = 16

// Retired says whether there is anything to sweep.
func (x *Index) Retired() bool { return x.holders.share.Of(x.holders.gone) > 0 }

// Sweep looks at so many rows, of which each block counts as one more and empty slots as a part of one, and takes away
// what retired holders had. It says whether anything is left to do.
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

// sweepOne goes on in one segment, and says how many rows are left to look at. Where rows go, those behind them move
// up, also those that are not looked at any more, until one stands at its home.
func (x *Index) sweepOne(s *segment, rows int) int {
	end := (x.sweep.at>>(perWord-s.depth) + 1) << (perWord - s.depth)
	from := s.seek(x.sweep.at)
	for at, to, left := from, from, false; ; at++ {
		if at == len(s.slots) {
			if left { // Some rows at the end have only moved up.
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

// blocksOf is how many blocks a row has.
func (x *Index) blocksOf(ids uint64) int {
	if !chained(ids) {
		return 0
	}
	return (chainLen(ids) + blockIDs - 1) / blockIDs
}

func (x *Index) retired(id Holder) bool { return x.holders.rows[id].state == retired }

// sift takes those out of a row that are retired.
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
				in-- // Its own last one came to this place, or it is gone.
			}
		}
		number = next
	}
	return x.blocks.short(ids)
}
