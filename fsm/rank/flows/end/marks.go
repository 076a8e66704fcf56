package end

import "github.com/kvferry/kvferry/effects"

// Marks of this flow.
const (
	MarkFull effects.Mark = 700 + iota
	MarkAgain
	MarkUntold
	MarkNotTaken
	MarkToldOther
	MarkMalformed
	MarkStranger
	markEnd
)

// MarkNames are the names of this flow's marks, from MarkFull up.
func MarkNames() []string {
	return []string{"full", "again", "untold", "not-taken", "told-other", "malformed", "stranger"}
}

const _ = uint(markEnd - MarkFull - 7)
