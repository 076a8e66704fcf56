package memory

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
	of      []uint32 // by class: pages that landed and are not free
	lives   []uint32 // by class: how often it was left to somebody else
	present []bool   // by class
	count   int      // of those that are present
}

func newLanded(classes int) landed {
	return landed{of: make([]uint32, classes), lives: make([]uint32, classes), present: make([]bool, classes)}
}

// contested says whether anybody but class is present.
func (l *landed) contested(class int) bool {
	return l.count > 1 || l.count == 1 && !l.present[class]
}

func (l *landed) add(pg *page, class int) {
	pg.landed = mine{class: int32(class) + 1, life: l.lives[class]}
	l.of[class]++
}

// left notes that a page became free.
func (p *Pool) left(pg *page) {
	l := &p.grants.landed
	if m := pg.landed; m.class != 0 && m.life == l.lives[m.class-1] {
		l.of[m.class-1]--
	}
	pg.landed = mine{}
}

// Landed is the number of pages that landed for class and are not free.
func (p *Pool) Landed(class int) uint32 { return p.grants.landed.of[class] }

// Present notes that the peer of this class is here, and may want pages at any time.
func (p *Pool) Present(class int) {
	if l := &p.grants.landed; !l.present[class] {
		l.present[class] = true
		l.count++
	}
}

// Absent notes that it is gone, or was not heard of for long. Who waits for his share looks again.
func (p *Pool) Absent(class int) {
	if l := &p.grants.landed; l.present[class] {
		l.present[class] = false
		l.count--
		p.freed++
	}
}

// Disown leaves the class to somebody else, who does not answer for what landed before.
func (p *Pool) Disown(class int) {
	l := &p.grants.landed
	l.of[class] = 0
	l.lives[class]++
}
