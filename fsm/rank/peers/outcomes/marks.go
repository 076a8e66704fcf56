package outcomes

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkFull effects.Mark = 690 + iota
	MarkOfOther
	MarkEndOfOther
	MarkEndOfFormer
	MarkBatchOfFormer
	markEnd
)

// MarkNames are the names of this room's marks, from MarkFull up.
func MarkNames() []string {
	return []string{"full", "of-other", "end-of-other", "end-of-former", "batch-of-former"}
}

const _ = uint(markEnd - MarkFull - 5)
