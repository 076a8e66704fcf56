package index

// A block holds 14 holders of a row that has more than four, and the number of the next block. Only the first block
// of a row may be partly filled.
type block struct {
	ids  [blockIDs]Holder
	next uint32 // number of the next block; 0: none
}

const (
	blockIDs   = 14
	pageBlocks = 1024
)

// blocks is the memory of all blocks, which are numbered from 1. The blocks are stored in pages that never move,
// except the first page, which begins small and grows.
type blocks struct {
	pages [][]block
	free  uint32 // first block of the list of free blocks
	used  int    // blocks in use
}

func (b *blocks) at(number uint32) *block {
	return &b.pages[(number-1)/pageBlocks][(number-1)%pageBlocks]
}

// take returns the number of an empty block.
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

// give frees a block.
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
