package memory

import (
	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A page that has landed and is kept for its request no longer counts as granted. If that were all, a peer that is
// granted pages, fills them and is granted more could fill the pool, and the next peer would have to wait until claims
// expire. Therefore a page counts for the class that it landed for until the page is free, and that count is part of
// the share of the class while the peer of another class is present. A peer that is alone may fill the pool.

// landedClass names the class that a page landed for. A class is reassigned to another peer in the course of time, so
// landedClass also names the assignment.
type landedClass struct {
	class      int32        // the class plus 1; 0: none
	assignment uint32       // landedCounts.assignments of the class when the page landed
	group      table.Handle // the group of the class at that time; 0: it had none
}

// landedCounts counts the pages that landed for each class.
type landedCounts struct {
	counts      []uint32 // by class: pages that landed and are not free
	assignments []uint32 // by class: how often the class was given to another peer
}

// recycle returns counts of 0 for so many classes, in the memory of l.
func (l *landedCounts) recycle(classes int) landedCounts {
	return landedCounts{counts: table.RecycleSlice(l.counts, classes), assignments: table.RecycleSlice(l.assignments, classes)}
}

// addPage counts a page that landed for class.
func (l *landedCounts) addPage(pg *page, class int) {
	pg.landedFor = landedClass{class: int32(class) + 1, assignment: l.assignments[class]}
	l.counts[class]++
}

// countLanded counts a page of p that landed for class, for the class and for its group.
func (ps *Pools) countLanded(p *Pool, pg *page, class int) {
	p.landedByClass.addPage(pg, class)
	p.countLandedGroup(pg, ps.groups.byClass[class])
}

// uncountLanded stops counting a page that became free, or that any class can have (MarkEvictable). If the class was
// given to another peer since the page landed, the page is not in the count any more.
func (p *Pool) uncountLanded(pg *page) {
	l := &p.landedByClass
	if m := pg.landedFor; m.class != 0 && m.assignment == l.assignments[m.class-1] {
		l.counts[m.class-1]--
	}
	p.uncountLandedGroup(pg)
	pg.landedFor = landedClass{}
}

// LandedPages returns the number of pages that landed for class and still count for it.
func (p *Pool) LandedPages(class int) uint32 { return p.landedByClass.counts[class] }

// CountsLanded returns the number of pages of the frame with this head that count for a class. It is for inspection
// only.
func (p *Pool) CountsLanded(head effects.Page) (n int) {
	for next := head.Index + 1; next != 0; next = p.pageAt(next - 1).next {
		if p.pageAt(next-1).landedFor.class != 0 {
			n++
		}
	}
	return n
}
