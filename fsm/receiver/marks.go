package receiver

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkAllocMalformed effects.Mark = 300 + iota
	MarkStrangerRefused
	MarkAllocRefused
	MarkAskedAgain
	MarkAlreadySent
	MarkKeyRepeated
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
	MarkGrantAbandoned
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
		"already-sent",
		"key-repeated",
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
		"grant-abandoned",
		"offer-buried",
		"plain-refused",
		"plains-full",
		"get-lapsed",
		"get-hopeless",
	}
}

const _ = uint(markEnd - MarkAllocMalformed - 46)
