package loan

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkPrefixCut effects.Mark = 470 + iota
	MarkByWord
	MarkByTime
	MarkRevoked
	MarkLost
	MarkArenaCut
	markEnd
)

// MarkNames are the names of this room's marks, from MarkPrefixCut up.
func MarkNames() []string {
	return []string{"prefix-cut", "by-done", "by-time", "revoked", "lost", "arena-cut"}
}

const _ = uint(markEnd - MarkPrefixCut - 6)
