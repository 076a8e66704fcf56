package allocqueue

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkAsksFull effects.Mark = 280 + iota
	MarkAskWaits
	MarkAskExpired
	MarkAskerLost
	MarkAskAbandoned
	markEnd
)

// MarkNames are the names of this room's marks, from MarkAsksFull up.
func MarkNames() []string {
	return []string{"requests-full", "request-waits", "request-expired", "requester-lost", "request-abandoned"}
}

const _ = uint(markEnd - MarkAsksFull - 5)
