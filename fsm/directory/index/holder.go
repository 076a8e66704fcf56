package index

import "github.com/kvferry/kvferry/fsm/table"

// A Holder names one that holds chunks. Zero names nobody. A number names another holder only after the last chunk of
// the one before was swept away.
type Holder uint16

// HoldersMost is how many there can be.
const HoldersMost = many - 1

type state uint8

const (
	unused  state = iota
	hidden        // it fills, and nobody is told of it
	shown         // it is found
	retired       // nobody is told of it any more, and it is swept away
)

// A holder is counted in the share of its group, with its place and with its chunks.
type holder struct {
	group int
	of    int    // whose it is: see Prefix
	rank  uint64 // the key of its rank
	sum   uint64 // of what it has
	count int    // of chunks
	state state
	next  Holder // to be used again
}

// holders are all of them, by their numbers.
type holders struct {
	rows  []holder // the first one is nobody
	most  int
	free  Holder // the first that can be used
	used  int
	share table.Share // of all chunks of holders: by group, and the last one for those that are swept
	place table.Share // likewise, of the holders
	gone  int         // that class
}

func newHolders(l Limits) holders {
	return holders{
		rows: make([]holder, 1, 4), most: min(l.Holders, HoldersMost), gone: l.Groups,
		share: new(table.Share).Emptied(l.Chunks, l.Groups+1),
		place: new(table.Share).Emptied(min(l.Holders, HoldersMost), l.Groups+1),
	}
}

// Open gives a holder of chunks of a rank, in a group from 0. It is somebody's who asks with Prefix for those of others.
// It is not found before Show. It is 0 if the group has as many as it leaves to others, those counted that are not swept
// away yet.
func (x *Index) Open(group, of int, rank uint32) Holder {
	t := &x.holders
	id := t.free
	switch {
	case !t.place.May(group):
		return 0
	case id != 0:
		t.free = t.rows[id].next
	case len(t.rows) <= t.most:
		id = Holder(len(t.rows))
		t.rows = append(t.rows, holder{})
	default:
		return 0
	}
	t.rows[id] = holder{group: group, of: of, rank: x.hider.of(rank), state: hidden}
	t.used++
	t.place.Take(group)
	return id
}

// Show lets a holder be found, with all that it has.
func (x *Index) Show(id Holder) { x.live(id).state = shown }

// Retire lets it be found no more. Its number is used again when all that it had is swept away.
func (x *Index) Retire(id Holder) {
	t, h := &x.holders, x.live(id)
	h.state = retired
	t.share.Add(h.group, -h.count)
	t.share.Add(t.gone, h.count)
	t.place.Give(h.group)
	t.place.Take(t.gone)
	x.sweep.again = true
	t.release(id)
}

// release lets the number of a retired holder that has nothing be used again.
func (t *holders) release(id Holder) {
	if h := &t.rows[id]; h.count == 0 {
		*h = holder{next: t.free}
		t.free = id
		t.used--
		t.place.Give(t.gone)
	}
}

// live is a holder that was opened and not retired.
func (x *Index) live(id Holder) *holder {
	h := &x.holders.rows[id]
	if h.state != hidden && h.state != shown {
		panic("BUG: a holder is used that was retired, or was never opened")
	}
	return h
}

// lose counts one chunk that a retired holder does not have any more.
func (t *holders) lose(id Holder) {
	t.rows[id].count--
	t.share.Give(t.gone)
	t.release(id)
}

// Has is how many chunks a holder has, and a sum of them that is the same in every index in which it has the same.
func (x *Index) Has(id Holder) (chunks int, sum uint64) {
	h := x.live(id)
	return h.count, h.sum
}
