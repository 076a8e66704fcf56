package index

import "github.com/kvferry/kvferry/fsm/table"

// A Holder is the number of a set of chunks, such as a location of a worker. Zero is no holder. A number is used
// again only after the last chunk of its former holder has been swept away.
type Holder uint16

// HoldersMost is the largest possible number of holders.
const HoldersMost = many - 1

// A state is the state of a holder.
type state uint8

const (
	unused  state = iota
	hidden        // being filled, and not found by lookups
	shown         // lookups find the holder
	retired       // being swept away, and not found by lookups
)

// A holder is the row of a Holder. The holder itself and the chunks of the holder count in the shares of the group.
type holder struct {
	group int
	of    int    // owner, such as an instance: see Prefix
	rank  uint64 // key of the rank
	sum   uint64 // checksum of the chunks
	count int    // number of chunks
	state state
	next  Holder // next in the list of free numbers
}

// holders is the table of all holders, by their numbers.
type holders struct {
	rows []holder // row 0 is unused
	most int      // limit of holders
	free Holder   // first of the free numbers
	used int
	// share counts the chunks of all holders by group. Its last class counts the chunks of retired holders.
	share table.Share
	// place counts the holders likewise.
	place table.Share
	gone  int // that last class
}

func newHolders(l Limits) holders {
	return holders{
		rows: make([]holder, 1, 4), most: min(l.Holders, HoldersMost), gone: l.Groups,
		share: new(table.Share).Emptied(l.Chunks, l.Groups+1),
		place: new(table.Share).Emptied(min(l.Holders, HoldersMost), l.Groups+1),
	}
}

// Open creates a holder of chunks of a rank, in a group from 0. The owner of, an instance for example, can be
// excluded from the results of Prefix. The holder is hidden from lookups until Show. Open returns 0 if the group has
// as many holders as it may have, including holders that are not swept away yet, or if all numbers are in use.
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

// Show makes a holder with all chunks visible to lookups.
func (x *Index) Show(id Holder) { x.live(id).state = shown }

// Retire hides a holder from lookups for good. The number becomes free when all chunks of the holder have been swept
// away.
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

// release frees the number of a retired holder without chunks.
func (t *holders) release(id Holder) {
	if h := &t.rows[id]; h.count == 0 {
		*h = holder{next: t.free}
		t.free = id
		t.used--
		t.place.Give(t.gone)
	}
}

// live returns the row of a holder that was opened and not retired. The function panics for all further numbers.
func (x *Index) live(id Holder) *holder {
	h := &x.holders.rows[id]
	if h.state != hidden && h.state != shown {
		panic("BUG: a holder is used that was retired, or was never opened")
	}
	return h
}

// lose counts the removal of a chunk of a retired holder.
func (t *holders) lose(id Holder) {
	t.rows[id].count--
	t.share.Give(t.gone)
	t.release(id)
}

// Has returns the number of chunks of a holder, and a checksum that is equal in every index in which the holder has
// the same chunks.
func (x *Index) Has(id Holder) (chunks int, sum uint64) {
	h := x.live(id)
	return h.count, h.sum
}
