package index

// A block holds 14 holders of a row that has more than four, and the number of the next block. Only the first block
// of a row may be partly filled.
type block struct {
	ids  [holdersPerBlock]Holder
	next uint32 // number of the next block; 0: none
}

const (
	holdersPerBlock = 14
	blocksPerPage   = 1024
)

// blocks is the memory of all blocks, which are numbered from 1. The blocks are stored in pages that never move,
// except the first page, which begins small and grows.
type blocks struct {
	pages     [][]block
	firstFree uint32 // first block of the list of free blocks
	used      int    // blocks in use
}

func (b *blocks) blockAt(number uint32) *block {
	return &b.pages[(number-1)/blocksPerPage][(number-1)%blocksPerPage]
}

// allocBlock returns the number of an empty block.
func (b *blocks) allocBlock() uint32 {
	b.used++
	if n := b.firstFree; n != 0 {
		b.firstFree = b.blockAt(n).next
		*b.blockAt(n) = block{}
		return n
	}
	if len(b.pages) == 0 || len(b.pages[len(b.pages)-1]) == blocksPerPage {
		capacity := blocksPerPage
		if len(b.pages) == 0 {
			capacity = 0
		}
		b.pages = append(b.pages, make([]block, 0, capacity))
	}
	last := &b.pages[len(b.pages)-1]
	*last = append(*last, block{})
	return uint32((len(b.pages)-1)*blocksPerPage + len(*last))
}

// freeBlock frees a block.
func (b *blocks) freeBlock(number uint32) {
	*b.blockAt(number) = block{next: b.firstFree}
	b.firstFree = number
	b.used--
}

func (b *blocks) countBytes() int {
	n := 0
	for _, p := range b.pages {
		n += 32 * cap(p)
	}
	return n
}
