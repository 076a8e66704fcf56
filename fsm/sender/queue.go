package sender

import (
	"slices"

	"github.com/kvferry/kvferry/effects"
	"github.com/kvferry/kvferry/fsm/table"
)

// A queue is the puts of one flow that wait for the lanes of one peer, oldest first. The lists run through the flow's
// own table.
type queue struct {
	first   table.List   // to be asked, on the alloc lane
	last    table.List   // to say a last word, on the commit lane
	blocked bool         // the first waits for what all peers share, not for its lane
	lost    effects.Conn `snap:"skip"` // whose end was told last to one that was in flight on it
}

// Queues are those of all peers of a flow.
type queues struct {
	of []queue // by the slot of the link's peer
	// line are the peers whose queue is blocked, in order: what all share goes to the first of them, so that no
	// peer's small puts pass another's large one.
	line []table.Handle
	sent uint64 `snap:"skip"` // puts, on alloc lanes
}

func newQueues(peers uint32) queues { return queues{of: make([]queue, peers)} }

func (q *queues) at(peer table.Handle) *queue { return &q.of[peer.Slot()] }

// mayPass says whether nobody's turn comes before a peer's.
func (q *queues) mayPass(peer table.Handle) bool { return len(q.line) == 0 || q.line[0] == peer }

// block puts a peer at the end of the line, and says whether it was not there.
func (q *queues) block(peer table.Handle) bool {
	at := q.at(peer)
	if at.blocked {
		return false
	}
	at.blocked = true
	q.line = append(q.line, peer)
	return true
}

// unblock takes a peer out of the line.
func (q *queues) unblock(peer table.Handle) {
	at := q.at(peer)
	if !at.blocked {
		return
	}
	at.blocked = false
	if i := slices.Index(q.line, peer); i >= 0 {
		q.line = slices.Delete(q.line, i, i+1)
	}
}
