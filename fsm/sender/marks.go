package sender

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkReservesFull effects.Mark = 200 + iota
	MarkReserveFailed
	MarkReleaseInUse
	MarkPutsFull
	MarkPeersFull
	MarkPeerUnfit
	MarkStoppedAsking
	MarkStoppedMoving
	MarkStoppedCommitting
	MarkAnswerOverdue
	MarkAskAgain
	MarkCommitAgain
	MarkReplyMalformed
	MarkReplyAfterOutcome
	MarkReplySenseless
	MarkAllSkipped
	MarkAskedStale
	MarkAllocFailed
	MarkUnsettled
	MarkTransferFailed
	MarkCommitGone
	MarkRequestsFull
	MarkRequestEnded
	MarkTellAgain
	MarkReplyAfterLink
	MarkBackedOff
	MarkPeerBackedOff
	MarkBackpressure
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
	MarkNobodyThere
	markEnd
)

// MarkNames are the names of this room's marks, from MarkReservesFull up.
func MarkNames() []string {
	return []string{
		"reserves-full", "reserve-failed", "release-in-use", "puts-full", "peers-full", "peer-unfit",
		"stopped-asking", "stopped-moving", "stopped-committing", "answer-overdue", "ask-again", "commit-again",
		"reply-malformed", "reply-after-outcome", "reply-senseless", "all-skipped", "asked-stale", "alloc-failed",
		"unsettled", "transfer-failed", "commit-gone", "requests-full", "request-ended", "tell-again",
		"reply-after-link", "backed-off", "peer-backed-off",
		"backpressure", "offer-again", "offer-orphaned", "offer-over", "ack-lost", "done-malformed", "done-unknown", "done-early",
		"stopped-offered", "withdrawn",
		"host-full", "copy-failed", "copy-unsettled", "stopped-copying", "copied-late", "nobody-there",
	}
}

const _ = uint(markEnd - MarkReservesFull - 43)
