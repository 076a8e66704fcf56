package ended

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkFull effects.Mark = 720 + iota
	MarkOfOther
	MarkEndOfOther
	MarkEndOfFormer
	markEnd
)

// MarkNames are the names of this room's marks, from MarkFull up.
func MarkNames() []string {
	return []string{"full", "of-other", "end-of-other", "end-of-former"}
}

const _ = uint(markEnd - MarkFull - 4)
