package flow

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkAllocMalformed effects.Mark = 330 + iota
	MarkStrangerRefused
	MarkAllocRefused
	MarkAskedAgain
	MarkKeyRepeated
	MarkAbandoned
	MarkPlainOffer
	MarkOfferedAgain
	MarkNotReached
	MarkOfferWithdrawn
	MarkOfferTooLate
	MarkReadLate
	MarkReadUnsettled
	MarkReadFailed
	MarkOffersFull
	MarkOfferDropped
	MarkOfferOver
	MarkOfferBuried
	MarkPlainRefused
	MarkPlainsFull
	MarkLineCut
	MarkGoneCut
	MarkWordsCut
	markEnd
)

// TargetMarkNames are the names of this room's marks, from MarkAllocMalformed up.
func TargetMarkNames() []string {
	return []string{
		"alloc-malformed",
		"stranger-refused",
		"alloc-refused",
		"asked-again",
		"key-repeated",
		"abandoned",
		"vanilla-offer",
		"offered-again",
		"not-reached",
		"offer-withdrawn",
		"offer-too-late",
		"read-late",
		"read-unsettled",
		"read-failed",
		"offers-full",
		"offer-dropped",
		"offer-expired",
		"offer-remembered",
		"vanilla-refused",
		"vanillas-full",
		"line-cut",
		"gone-cut",
		"words-cut",
	}
}

const _ = uint(markEnd - MarkAllocMalformed - 23)
