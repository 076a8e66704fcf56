package memory

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// A frame is a list of pages that are freed together: a head, and pages that are bound behind it. The owner of the head
// owns the whole frame, and the pages behind the head have no owner of their own: the reference of each is dropped when
// the page before that page becomes free. A page with nothing bound behind it is a frame of one page. The layers of one
// chunk that was pushed layer by layer are a frame (package bundle).

// BindFrame makes a frame of pages, in their order. Each page must have one reference and nothing else. The references
// to all pages but the first go over to the frame. BindFrame panics if a page has another user or is bound already.
func (p *Pool) BindFrame(pages []effects.Page) {
	for i, page := range pages {
		if pg := p.pageOf(page); !p.IsEvictable(page) || pg.next != 0 {
			panic(fmt.Sprintf("BUG: page %d is bound, and somebody else has it", page.Index))
		}
		if i+1 < len(pages) {
			p.pageOf(page).next = pages[i+1].Index + 1
		}
	}
}

// AppendFrame appends the pages of the frame with this head to dst. Each gets the head's Length, and its own checksum.
func (p *Pool) AppendFrame(head effects.Page, dst []effects.Page) []effects.Page {
	for {
		head.Sum = p.SumOf(head)
		dst = append(dst, head)
		next := p.pageOf(head).next
		if next == 0 {
			return dst
		}
		head.Index, head.Generation = next-1, p.pageAt(next-1).generation
	}
}

// FrameSize returns the number of pages of the frame with this head.
func (p *Pool) FrameSize(head effects.Page) (n uint32) {
	for next := head.Index + 1; next != 0; next = p.pageAt(next - 1).next {
		n++
	}
	return n
}

// PromisePages promises n free pages to a class: FreePages no longer counts the pages, and they count as used by the
// class. The class takes the pages later, with UnpromisePages and GrantPages. The caller must have checked FitsShare.
// PromisePages panics if fewer than n pages are free.
func (ps *Pools) PromisePages(p *Pool, class int, n uint32) {
	if n > p.FreePages() {
		panic(fmt.Sprintf("BUG: %d pages are promised, and %d are free", n, p.FreePages()))
	}
	p.promisedPages += n
	ps.addUsed(p, class, n)
}

// UnpromisePages ends the promise of n pages, or of the rest of a promise. Requests that wait for pages are tried
// again, even if n is 0, because a request may wait for the end of the batch that had the promise. UnpromisePages
// panics if fewer than n pages are promised.
func (ps *Pools) UnpromisePages(p *Pool, class int, n uint32) {
	if p.promisedPages < n || p.usedByClass[class] < n {
		panic(fmt.Sprintf("BUG: a promise of %d pages ended twice", n))
	}
	p.promisedPages -= n
	ps.dropUsed(p, class, n)
	ps.freedCount += uint64(n) + 1
}

// PromisedPages returns the number of pages that are promised.
func (p *Pool) PromisedPages() uint32 { return p.promisedPages }
