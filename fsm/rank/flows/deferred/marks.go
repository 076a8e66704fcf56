package deferred

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkFetchShort effects.Mark = 313 + iota
	MarkStartsCut
	MarkWithdrawalCut
	MarkFetchOver
	markEnd
)

// MarkNames are the names of this room's marks, from MarkFetchShort up.
func MarkNames() []string {
	return []string{"fetch-short", "starts-cut", "withdrawal-cut", "fetch-over"}
}

const _ = uint(markEnd - MarkFetchShort - 4)
