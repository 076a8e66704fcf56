package notice

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkHostsFull effects.Mark = 300 + iota
	MarkDoneGivenUp
	markEnd
)

// MarkNames are the names of this room's marks, from MarkHostsFull up.
func MarkNames() []string { return []string{"hosts-full", "done-given-up"} }

const _ = uint(markEnd - MarkHostsFull - 2)
