package kernel

import "github.com/kvferry/kvferry/fsm/table"

// What a step does is bounded, whatever its event ends: a drain, a peer that is gone, a request that nobody wants. So
// what ends many rows at once is two things. First it condemns them, in one step and without looking at any: by a flag,
// a count of their class (Losses), or the name that they have in common. Then a Sweep ends them, so many a step. A row
// that is condemned and stands is never served meanwhile: whoever comes upon it asks whether it is condemned, and ends
// it there and then, or leaves it to the sweep. A sweep frees nothing by itself: each row ends by its own rules, so no
// page is free earlier than without it.

// Work is what a step may still do of what can wait for the next one: end rows, of which each chunk counts, and look at
// others, which costs a part of that. The row that uses it up is finished, so a step does at most one batch more. A nil
// Work has no end, for tests of rooms.
type Work struct{ left int }

// looks are as many as cost what ending a row does.
const looks = 16

// Begin gives a step its work.
func (w *Work) Begin(rows int) { w.left = rows * looks }

// Spend counts rows, or chunks of one, that end.
func (w *Work) Spend(rows int) {
	if w != nil {
		w.left -= rows * looks
	}
}

// Look counts a row that is looked at.
func (w *Work) Look() { w.Looks(1) }

// Looks counts n of them.
func (w *Work) Looks(n int) {
	if w != nil {
		w.left -= n
	}
}

// Rows is how many rows may still end in this step; the last of them may be large.
func (w *Work) Rows() uint32 {
	if w == nil {
		return 1<<32 - 1
	}
	return uint32(max(0, w.left+looks-1) / looks)
}

// Left says whether there is any left.
func (w *Work) Left() bool { return w == nil || w.left > 0 }

// A Sweep is one pass over the slots of some tables, cut into as many steps as its work takes. It knows where it is,
// and no more: what it looks for is for whoever visits. Who asks for a pass while one is under way has another one
// behind it. So nothing that comes begins a pass anew, each pass ends, and what was condemned before a pass began has
// been looked at when it ends.
type Sweep struct {
	table uint8 // at which it is, from 1; 0: no pass is under way
	slot  int32
	again bool // another pass follows
}

// Want asks for a pass, and says whether it begins now.
func (s *Sweep) Want() bool {
	if s.table != 0 {
		s.again = true
		return false
	}
	s.table, s.slot = 1, 0
	return true
}

// Under says whether a pass is under way: the rank has work left, and its deadline is now.
func (s *Sweep) Under() bool { return s.table != 0 }

// Where says where a sweep goes on from a slot.
type Where uint8

// Places to go on.
const (
	NextTable Where = iota // there is no such slot
	NextSlot
	SameSlot // a table that is taken from its front, or a slot that has a list
)

// At goes on behind a slot, if there is such a one.
func At(is bool) Where {
	if is {
		return NextSlot
	}
	return NextTable
}

// Front goes on with a table that is taken from its front, if there was anything.
func Front(was bool) Where {
	if was {
		return SameSlot
	}
	return NextTable
}

// Go goes on with the pass while there is work, and says whether it has ended it. It visits slot after slot of the
// tables 1 to tables. Another pass, if one follows, has begun when it returns.
func (s *Sweep) Go(w *Work, tables uint8, visit func(table uint8, slot int32) Where) (ended bool) {
	for s.table != 0 && w.Left() {
		w.Look()
		switch visit(s.table, s.slot) {
		case SameSlot:
			continue
		case NextSlot:
			s.slot++
			continue
		case NextTable:
		}
		if s.table, s.slot = s.table+1, 0; s.table > tables {
			s.table = 0
			if s.again {
				s.again, s.table = false, 1
			}
			return true
		}
	}
	return false
}

// Losses count, for each class, how often all that it had was condemned. A row keeps the count of its birth. All of
// that matters only while a sweep is under way.
type Losses struct{ of []Birth }

// A Birth is the count at which a row was born.
type Birth uint32

// Emptied counts those of so many classes, in the memory of l, which is not used any more.
func (l *Losses) Emptied(classes int) Losses { return Losses{of: table.Zeroed(l.of, classes)} }

// Of is the count of a class, for a row that is born.
func (l *Losses) Of(class int) Birth { return l.of[class] }

// Add condemns what a class has. What it gets from now on is not.
func (l *Losses) Add(class int) { l.of[class]++ }

// Over says whether a row of a class that was born at this count is condemned.
func (l *Losses) Over(class int, born Birth) bool { return l.of[class] != born }
