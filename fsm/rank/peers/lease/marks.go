package lease

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkRenewGone effects.Mark = 260 + iota
	MarkRenewCapped
	markEnd
)

// MarkNames are the names of this room's marks, from MarkRenewGone up.
func MarkNames() []string { return []string{"renew-gone", "renew-capped"} }

const _ = uint(markEnd - MarkRenewGone - 2)
