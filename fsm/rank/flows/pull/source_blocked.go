package pull

import (
	"slices"

	"github.com/kvferry/kvferry/fsm/table"
)

// A blocked is the queue of peers with a first put that waits for room below the high-water mark and not for the
// lane. Room is given to the first peer in the queue, so that no peer's small puts overtake the large put of
// another peer.
type blocked struct {
	is   []bool // whether a peer is in line, by the slot of the outbound peer
	line []table.Handle

	shifted bool // a put or a peer left a queue without having been served
}

// mayPass reports whether a peer may take room now: no other peer is first in line.
func (b *blocked) mayPass(peer table.Handle) bool { return len(b.line) == 0 || b.line[0] == peer }

// block appends a peer to the line, and returns false if the peer was there already.
func (b *blocked) block(peer table.Handle) bool {
	if b.is[peer.Slot()] {
		return false
	}
	b.is[peer.Slot()] = true
	b.line = append(b.line, peer)
	return true
}

// unblock removes a peer from the line.
func (b *blocked) unblock(peer table.Handle) {
	if !b.is[peer.Slot()] {
		return
	}
	b.is[peer.Slot()] = false
	if i := slices.Index(b.line, peer); i >= 0 {
		b.line = slices.Delete(b.line, i, i+1)
	}
}

// Shifted reports, once, that a put left a queue without having been served, so that the room may suffice for the
// puts behind it.
func (b *blocked) Shifted() bool {
	was := b.shifted
	b.shifted = false
	return was
}
