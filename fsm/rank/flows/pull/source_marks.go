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
	sourceMarkEnd
)

// SourceMarkNames are their names, from MarkBackpressure up.
func SourceMarkNames() []string {
	return []string{
		"backpressure", "offer-again", "offer-orphaned", "offer-over", "ack-lost", "done-malformed",
		"done-unknown", "done-early", "stopped-offered", "withdrawn",
	}
}

const _ = uint(sourceMarkEnd - MarkBackpressure - 10)
