package store

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkClaimsFull effects.Mark = 370 + iota
	MarkClaimExpired
	MarkClaimsCut
	markEnd
)

// MarkNames are the names of this room's marks, from MarkClaimsFull up.
func MarkNames() []string { return []string{"claims-full", "claim-expired", "claims-cut"} }

const _ = uint(markEnd - MarkClaimsFull - 3)
