package pull

import (
	"slices"

	"github.com/kvferry/kvferry/fsm/table"
)

// A roomQueue is the queue of peers with a first put that waits for room below the high-water mark and not for the
// lane. Room is given to the first peer in the queue, so that no peer's small puts overtake the large put of
// another peer.
type roomQueue struct {
	isWaiting    []bool // whether a peer is in line, by the slot of the outbound peer
	waitingPeers []table.Handle

	moved bool // a put or a peer left a queue without having been served
}

// mayTakeRoom reports whether a peer may take room now: no other peer is first in line.
func (b *roomQueue) mayTakeRoom(peer table.Handle) bool {
	return len(b.waitingPeers) == 0 || b.waitingPeers[0] == peer
}

// waitForRoom appends a peer to the line, and returns false if the peer was there already.
func (b *roomQueue) waitForRoom(peer table.Handle) bool {
	if b.isWaiting[peer.Slot()] {
		return false
	}
	b.isWaiting[peer.Slot()] = true
	b.waitingPeers = append(b.waitingPeers, peer)
	return true
}

// stopWaitingForRoom removes a peer from the line.
func (b *roomQueue) stopWaitingForRoom(peer table.Handle) {
	if !b.isWaiting[peer.Slot()] {
		return
	}
	b.isWaiting[peer.Slot()] = false
	if i := slices.Index(b.waitingPeers, peer); i >= 0 {
		b.waitingPeers = slices.Delete(b.waitingPeers, i, i+1)
	}
}

// PollMoved reports, once, that a put left a queue without having been served, so that the room may suffice for the
// puts behind it.
func (b *roomQueue) PollMoved() bool {
	moved := b.moved
	b.moved = false
	return moved
}
