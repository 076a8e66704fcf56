package memory

import "github.com/kvferry/kvferry/fsm/table"

// What was granted, landed, and is kept for its request is no peer's any more by the rules of grants. But a peer that
// is granted, lands and is granted again would fill the pool, and whoever comes next would wait for claims to end.
// So a page counts for the class that it landed for until it is free, and while others are present that counts in the
// class's share. A peer that is alone may fill the pool.

// mine says for which life of which class a page landed.
type mine struct {
	class int32 // plus one; 0: for nobody
	life  uint32
}

type landed struct {
	of    []uint32 // by class: pages that landed and are not free
	lives []uint32 // by class: how often it was left to somebody else
}

func (l *landed) emptied(classes int) landed {
	return landed{of: table.Zeroed(l.of, classes), lives: table.Zeroed(l.lives, classes)}
}

func (l *landed) add(pg *page, class int) {
	pg.landed = mine{class: int32(class) + 1, life: l.lives[class]}
	l.of[class]++
}

// left notes that a page became free.
func (p *Pool) left(pg *page) {
	l := &p.landed
	if m := pg.landed; m.class != 0 && m.life == l.lives[m.class-1] {
		l.of[m.class-1]--
	}
	pg.landed = mine{}
}

// Landed is the number of pages that landed for class and are not free.
func (p *Pool) Landed(class int) uint32 { return p.landed.of[class] }
