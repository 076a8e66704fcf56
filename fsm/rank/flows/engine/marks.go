package engine

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkReservesFull effects.Mark = 270 + iota
	MarkReserveFailed
	MarkReleaseInUse
	MarkRequestsFull
	MarkRequestEnded
	MarkPutsFull
	MarkTellAgain
	MarkReservesCut
	MarkSharesFull
	MarkWithdrawWaits
	markEnd
)

// MarkNames are the names of this room's marks, from MarkReservesFull up.
func MarkNames() []string {
	return []string{"reserves-full", "reserve-failed", "release-in-use", "requests-full", "request-ended",
		"puts-full", "tell-again", "reserves-cut", "shares-full", "withdraw-waits"}
}

const _ = uint(markEnd - MarkReservesFull - 10)
