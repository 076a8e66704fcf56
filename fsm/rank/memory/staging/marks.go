package staging

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkFetchesFull effects.Mark = 400 + iota
	MarkFetchExpired
	MarkFetchAborted
	MarkStagingShort
	MarkSourcesMixed
	MarkLeaseOver
	MarkReadFailed
	MarkReadLate
	MarkReadUnsettled
	MarkScatterFailed
	MarkScatteredLate
	MarkSourceWithdrawn
	MarkSourceLost
	MarkStagingCut
	MarkLossCut
	markEnd
)

// MarkNames are the names of this room's marks, from MarkFetchesFull up.
func MarkNames() []string {
	return []string{
		"fetches-full", "fetch-expired", "fetch-aborted", "staging-short", "sources-mixed", "lease-over", "read-failed",
		"read-late", "read-unsettled", "scatter-failed", "scattered-late", "source-withdrawn", "source-lost",
		"staging-cut", "loss-cut",
	}
}

const _ = uint(markEnd - MarkFetchesFull - 15)
