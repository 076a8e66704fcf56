package index

// A block has 14 holders of a row that has more than four, and says where the next block is. Only the first one of a
// row has fewer.
type block struct {
	ids  [blockIDs]Holder
	next uint32 // its number; 0: it is the last
}

const (
	blockIDs   = 14
	pageBlocks = 1024
)

// blocks are all blocks, by numbers from 1: in pages that are never moved, but for the first one, which begins small.
type blocks struct {
	pages [][]block
	free  uint32 // the first of those to be used again
	used  int
}

func (b *blocks) at(number uint32) *block {
	return &b.pages[(number-1)/pageBlocks][(number-1)%pageBlocks]
}

// take gives an empty block.
func (b *blocks) take() uint32 {
	b.used++
	if n := b.free; n != 0 {
		b.free = b.at(n).next
		*b.at(n) = block{}
		return n
	}
	if len(b.pages) == 0 || len(b.pages[len(b.pages)-1]) == pageBlocks {
		room := pageBlocks
		if len(b.pages) == 0 {
			room = 0
		}
		b.pages = append(b.pages, make([]block, 0, room))
	}
	last := &b.pages[len(b.pages)-1]
	*last = append(*last, block{})
	return uint32((len(b.pages)-1)*pageBlocks + len(*last))
}

// give takes a block back.
func (b *blocks) give(number uint32) {
	*b.at(number) = block{next: b.free}
	b.free = number
	b.used--
}

func (b *blocks) bytes() int {
	n := 0
	for _, p := range b.pages {
		n += 32 * cap(p)
	}
	return n
}
