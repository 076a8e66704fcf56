package memory

import "github.com/kvferry/kvferry/fsm/table"

// A page that has landed and is kept for its request no longer counts as granted. If that were all, a peer that is
// granted pages, fills them and is granted more could fill the pool, and the next peer would have to wait until claims
// expire. Therefore a page counts for the class that it landed for until the page is free, and that count is part of
// the share of the class while the peer of another class is present. A peer that is alone may fill the pool.

// mine names the class that a page landed for. A class is reassigned to another peer in the course of time, so mine
// also names the assignment.
type mine struct {
	class int32  // the class plus 1; 0: none
	life  uint32 // landed.lives of the class when the page landed
}

// landed counts the pages that landed for each class.
type landed struct {
	of    []uint32 // by class: pages that landed and are not free
	lives []uint32 // by class: how often the class was given to another peer
}

// emptied returns counts of 0 for so many classes, in the memory of l.
func (l *landed) emptied(classes int) landed {
	return landed{of: table.Zeroed(l.of, classes), lives: table.Zeroed(l.lives, classes)}
}

// add counts a page that landed for class.
func (l *landed) add(pg *page, class int) {
	pg.landed = mine{class: int32(class) + 1, life: l.lives[class]}
	l.of[class]++
}

// left stops counting a page that became free, or that any class can have (Spare). If the class was given to another
// peer since the page landed, the page is not in the count any more.
func (p *Pool) left(pg *page) {
	l := &p.landed
	if m := pg.landed; m.class != 0 && m.life == l.lives[m.class-1] {
		l.of[m.class-1]--
	}
	pg.landed = mine{}
}

// Landed returns the number of pages that landed for class and still count for it.
func (p *Pool) Landed(class int) uint32 { return p.landed.of[class] }
