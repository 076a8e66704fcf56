package receiver

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkAllocMalformed effects.Mark = 300 + iota
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
	MarkHostsFull
	MarkDoneGivenUp
	MarkOffersFull
	MarkOfferDropped
	MarkOfferOver
	MarkFetchShort
	MarkRenewed
	MarkRenewGone
	MarkRenewNowhere
	MarkRenewStale
	MarkRenewUnanswered
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
		"hosts-full",
		"done-given-up",
		"offers-full",
		"offer-dropped",
		"offer-expired",
		"fetch-short",
		"renewed",
		"renew-gone",
		"renew-nowhere",
		"renew-stale",
		"renew-unanswered",
		"offer-buried",
		"plain-refused",
		"plains-full",
		"get-lapsed",
		"get-hopeless",
	}
}

const _ = uint(markEnd - MarkAllocMalformed - 34)
