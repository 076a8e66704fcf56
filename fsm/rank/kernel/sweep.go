package kernel

import "github.com/kvferry/kvferry/fsm/table"

// The work of a step is bounded, whatever its event ends: a drain, a peer that has disconnected, an abandoned request.
// So many rows are ended in two phases. First the rows are condemned, in a single step and without looking at any row:
// by a flag, by a count of the class (Losses), or by a name that the rows have in common. Then a Sweep ends the rows, a
// bounded number in each step. A row that is condemned but has not ended is never served: code that finds the row
// checks whether the row is condemned, and ends the row immediately or leaves that to the sweep. A sweep frees nothing
// by itself: each row ends by its own rules, so no page becomes free earlier than without the sweep.
//
// Example: a peer with 1,000 allocation requests disconnects. The step of that event calls Losses.CondemnRows for the
// class of the peer, which condemns all of these requests, and requests a pass. With a budget of 256 rows per step the
// pass takes a few steps. A request that the peer sends after a new handshake is not condemned, because the request is
// inserted at the new count.

// WorkBudget is the budget of a step for work that can wait for the next step: ending rows, where each chunk of a row
// counts, and looking at rows, which costs a sixteenth of that. The row that uses up the budget is finished, so a step
// exceeds the budget by at most one batch. A nil WorkBudget is unlimited, for tests of rooms.
type WorkBudget struct{ looksLeft int }

// looksPerRow is the number of looks that cost as much as ending a row.
const looksPerRow = 16

// StartStep sets the budget for a new step, in rows.
func (w *WorkBudget) StartStep(rows int) { w.looksLeft = rows * looksPerRow }

// SpendRows subtracts rows that end, or chunks of a row that ends, from the budget.
func (w *WorkBudget) SpendRows(rows int) {
	if w != nil {
		w.looksLeft -= rows * looksPerRow
	}
}

// SpendLook subtracts a look at a row from the budget.
func (w *WorkBudget) SpendLook() { w.SpendLooks(1) }

// SpendLooks subtracts n looks from the budget.
func (w *WorkBudget) SpendLooks(n int) {
	if w != nil {
		w.looksLeft -= n
	}
}

// RowsLeft returns the number of rows that may still end in this step. The last of these rows may be larger than the
// rest of the budget.
func (w *WorkBudget) RowsLeft() uint32 {
	if w == nil {
		return 1<<32 - 1
	}
	return uint32(max(0, w.looksLeft+looksPerRow-1) / looksPerRow)
}

// HasBudget reports whether the budget is not used up.
func (w *WorkBudget) HasBudget() bool { return w == nil || w.looksLeft > 0 }

// Sweep is a pass over the slots of some tables, cut into as many steps as the budgets require. A Sweep only records
// its position; the visit function decides what to look for.
//
// A pass that is requested while a pass is under way follows the present pass and does not restart it. So each pass
// ends, however often passes are requested, and all that was condemned before a pass began has been visited when it
// ends.
type Sweep struct {
	table uint8 // the table that is being visited, from 1; 0: no pass is under way
	slot  int32 // the slot that is visited next
	rerun bool  // another pass follows
}

// RequestPass requests a pass. RequestPass reports whether the pass begins now; otherwise the requested pass follows
// the present pass.
func (s *Sweep) RequestPass() bool {
	if s.table != 0 {
		s.rerun = true
		return false
	}
	s.table, s.slot = 1, 0
	return true
}

// IsRunning reports whether a pass is under way. Meanwhile the rank has work left, and its deadline is now.
func (s *Sweep) IsRunning() bool { return s.table != 0 }

// VisitResult is the result of a visit: where the sweep continues.
type VisitResult uint8

// The places where a sweep can continue.
const (
	NextTable VisitResult = iota // the table has no slot of this number
	NextSlot                     // the slot is done
	SameSlot                     // visit the slot again: rows are taken from the front of a table, or the slot has a list
)

// NextSlotIf returns NextSlot if the table has the visited slot, and NextTable otherwise.
func NextSlotIf(exists bool) VisitResult {
	if exists {
		return NextSlot
	}
	return NextTable
}

// SameSlotIf returns SameSlot if a row was taken from the front of a table, and NextTable if the table was empty.
func SameSlotIf(removed bool) VisitResult {
	if removed {
		return SameSlot
	}
	return NextTable
}

// ContinuePass continues the pass while the step has work left, and reports whether the pass has ended. It visits each
// slot of the tables 1 to tables in order. If another pass follows, that pass has begun when ContinuePass returns.
func (s *Sweep) ContinuePass(w *WorkBudget, tables uint8, visit func(table uint8, slot int32) VisitResult) (ended bool) {
	for s.table != 0 && w.HasBudget() {
		w.SpendLook()
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
			if s.rerun {
				s.rerun, s.table = false, 1
			}
			return true
		}
	}
	return false
}

// Losses counts, for each class, how often all rows of the class were condemned. A row stores the count at the time
// when it is inserted; the row is condemned if the count has changed since. The counts matter only while a sweep is
// under way.
type Losses struct{ counts []LossCount }

// LossCount is the count of the class at the time when a row was inserted.
type LossCount uint32

// Recycle returns counts of 0 for so many classes, in the memory of l. The caller must not use l afterwards.
func (l *Losses) Recycle(classes int) Losses {
	return Losses{counts: table.RecycleSlice(l.counts, classes)}
}

// CountFor returns the present count of a class, for a row that is being inserted.
func (l *Losses) CountFor(class int) LossCount { return l.counts[class] }

// CondemnRows condemns all rows that the class has now. Rows that are inserted later are not condemned.
func (l *Losses) CondemnRows(class int) { l.counts[class]++ }

// IsCondemned reports whether a row of the class that was inserted at this count is condemned.
func (l *Losses) IsCondemned(class int, inserted LossCount) bool { return l.counts[class] != inserted }
