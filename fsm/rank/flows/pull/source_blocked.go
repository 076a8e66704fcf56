package pull

import (
	"slices"

	"github.com/kvferry/kvferry/fsm/table"
)

// Blocked are the peers whose first put waits for room below the high-water mark, not for its lane, in order: room goes
// to the first of them, so that no peer's small puts pass another's large one.
type blocked struct {
	is   []bool // by the slot of the outbound peer
	line []table.Handle

	shifted bool // somebody left a line without what he waited for
}

// mayPass says whether nobody's turn comes before a peer's.
func (b *blocked) mayPass(peer table.Handle) bool { return len(b.line) == 0 || b.line[0] == peer }

// block puts a peer at the end of the line, and says whether it was not there.
func (b *blocked) block(peer table.Handle) bool {
	if b.is[peer.Slot()] {
		return false
	}
	b.is[peer.Slot()] = true
	b.line = append(b.line, peer)
	return true
}

// unblock takes a peer out of the line.
func (b *blocked) unblock(peer table.Handle) {
	if !b.is[peer.Slot()] {
		return
	}
	b.is[peer.Slot()] = false
	if i := slices.Index(b.line, peer); i >= 0 {
		b.line = slices.Delete(b.line, i, i+1)
	}
}

// Shifted says, once, that somebody left a line without having got what he waited for: who is behind him may get it.
func (b *blocked) Shifted() bool {
	was := b.shifted
	b.shifted = false
	return was
}
