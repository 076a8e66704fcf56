package receiver

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkAllocMalformed effects.Mark = 330 + iota
	MarkStrangerRefused
	MarkAllocRefused
	MarkAskedAgain
	MarkKeyRepeated
	MarkGetsFull
	MarkGetWaits
	MarkGetShort
	MarkReleaseUnknown
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
	MarkFetchShort
	MarkOfferBuried
	MarkPlainRefused
	MarkPlainsFull
	MarkGetLapsed
	MarkGetHopeless
	markEnd
)

// MarkNames are the names of this room's marks, from MarkAllocMalformed up.
func MarkNames() []string {
	return []string{
		"alloc-malformed",
		"stranger-refused",
		"alloc-refused",
		"asked-again",
		"key-repeated",
		"gets-full",
		"get-waits",
		"get-short",
		"release-unknown",
		"abandoned",
		"plain-offer",
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
		"fetch-short",
		"offer-buried",
		"plain-refused",
		"plains-full",
		"get-lapsed",
		"get-hopeless",
	}
}

const _ = uint(markEnd - MarkAllocMalformed - 27)
