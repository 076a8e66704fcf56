package pull

import "github.com/kvferry/kvferry/effects"

// Marks of the source.
const (
	MarkBackpressure effects.Mark = 240 + iota
	MarkOfferAgain
	MarkOfferOrphaned
	MarkOfferOver
	MarkAckLost
	MarkDoneMalformed
	MarkDoneUnknown
	MarkDoneEarly
	MarkStoppedOffered
	MarkWithdrawn
	MarkHostFull
	MarkCopyFailed
	MarkCopyUnsettled
	MarkStoppedCopying
	MarkCopiedLate
	MarkCopiesCut
	sourceMarkEnd
)

// SourceMarkNames are their names, from MarkBackpressure up.
func SourceMarkNames() []string {
	return []string{
		"backpressure", "offer-again", "offer-orphaned", "offer-over", "ack-lost", "done-malformed",
		"done-unknown", "done-early", "stopped-offered", "withdrawn", "host-full", "copy-failed", "copy-unsettled",
		"stopped-copying", "copied-late", "copies-cut",
	}
}

const _ = uint(sourceMarkEnd - MarkBackpressure - 16)
