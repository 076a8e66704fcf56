package memory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// A frame is pages that live and die together: a head, and others that are bound behind it. Who has the head has them
// all, and none of the others is anybody's by itself. A page that nothing is bound behind is a frame of one.

// Bind makes a frame of pages, in their order, each of which has one reference: those behind the first go with that.
func (p *Pool) Bind(pages []effects.Page) {
	for i, page := range pages {
		if pg := p.of(page); !p.Evictable(page) || pg.next != 0 {
			panic(fmt.Sprintf("BUG: page %d is bound, and somebody else has it", page.Index))
		}
		if i+1 < len(pages) {
			p.of(page).next = pages[i+1].Index + 1
		}
	}
}

// Frame appends the pages of a frame to dst, as long as its head each.
func (p *Pool) Frame(head effects.Page, dst []effects.Page) []effects.Page {
	for {
		dst = append(dst, head)
		next := p.of(head).next
		if next == 0 {
			return dst
		}
		head.Index, head.Generation = next-1, p.at(next-1).generation
	}
}

// FrameSize is how many pages a frame has.
func (p *Pool) FrameSize(head effects.Page) (n uint32) {
	for next := head.Index + 1; next != 0; next = p.at(next - 1).next {
		n++
	}
	return n
}

// Keep promises n free pages to a class, of which its grants will take them: nobody else finds them free. FitsShare
// must hold, and so many must be free.
func (ps *Pools) Keep(p *Pool, class int, n uint32) {
	if n > p.Free() {
		panic(fmt.Sprintf("BUG: %d pages are promised, and %d are free", n, p.Free()))
	}
	p.kept += n
	p.used[class] += n
}

// Unkeep takes a promise back, of whatever is left of it. Who waits for pages looks again, or for what ends with it.
func (ps *Pools) Unkeep(p *Pool, class int, n uint32) {
	if p.kept < n || p.used[class] < n {
		panic(fmt.Sprintf("BUG: a promise of %d pages ended twice", n))
	}
	p.kept -= n
	p.used[class] -= n
	ps.freed += uint64(n) + 1
}

// Kept counts the pages that are promised.
func (p *Pool) Kept() uint32 { return p.kept }
