package register

import "github.com/kvferry/kvferry/effects"

// Marks of these flows.
const (
	MarkReceptionsFull effects.Mark = 640 + iota
	MarkAskAgain
	MarkOtherLife
	MarkGrantsFull
	MarkAnswerSenseless
	MarkRefused
	MarkExpiredEarly
	MarkIntroduceAgain
	MarkSaidWhole
	MarkAnswerOverdue
	MarkLandedPartly
	MarkLandedUnasked
	MarkWriterLost
	MarkGrantOver
	MarkWithdrawn
	MarkWithdrawnAgain
	MarkErrandsFull
	MarkKeepFailed
	MarkBatchesFull
	MarkNotNeeded
	MarkLeaseOver
	MarkAborted
	MarkOtherConsumer
	MarkRankTwice
	MarkRegistrationMalformed
	MarkStranger
	MarkRegisteredAgain
	MarkAnsweredAgain
	MarkTooLate
	MarkOtherEngine
	MarkRegistrationsFull
	MarkParked
	MarkParkedLong
	MarkAskerLost
	MarkAmbiguous
	MarkUncovered
	MarkTakenBack
	MarkTakenBackAgain
	MarkTakenBackFirst
	MarkWriteUnsettled
	MarkWriteFailed
	markEnd
)

// MarkNames are the names of these flows' marks, from MarkReceptionsFull up.
func MarkNames() []string {
	return []string{
		"receptions-full", "ask-again", "other-life", "grants-full", "answer-senseless", "refused", "expired-early",
		"introduce-again", "said-whole", "answer-overdue",
		"landed-partly", "landed-unasked", "writer-lost", "grant-over", "withdrawn", "withdrawn-again", "errands-full",
		"keep-failed",
		"batches-full", "not-needed", "lease-over", "aborted", "other-consumer", "rank-twice", "registration-malformed",
		"stranger", "registered-again", "answered-again", "too-late", "other-engine", "registrations-full", "parked",
		"parked-long", "asker-lost", "ambiguous", "uncovered", "taken-back", "taken-back-again", "taken-back-first",
		"write-unsettled", "write-failed",
	}
}

const _ = uint(markEnd - MarkReceptionsFull - 41)
