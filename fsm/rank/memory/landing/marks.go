package landing

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkAlreadySent effects.Mark = 287 + iota
	MarkTrusted
	MarkLandedUnknown
	MarkLandedPartly
	MarkLandedLate
	MarkFillLostRace
	MarkGrantExpired
	MarkWriterLost
	MarkCommitRepeated
	MarkCommitLate
	MarkGrantAborted
	MarkGrantAbandoned
	MarkTakenBefore
	markEnd
)

// MarkNames are the names of this room's marks, from MarkAlreadySent up.
func MarkNames() []string {
	return []string{
		"already-sent",
		"trusted",
		"landed-unknown",
		"landed-partly",
		"landed-late",
		"fill-lost-race",
		"grant-expired",
		"writer-lost",
		"commit-repeated",
		"commit-late",
		"grant-aborted",
		"grant-abandoned",
		"taken-before",
	}
}

const _ = uint(markEnd - MarkAlreadySent - 13)
