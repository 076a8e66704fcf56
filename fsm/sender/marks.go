package sender

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkPutsFull effects.Mark = 200 + iota
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

// MarkNames are the names of this room's marks, from MarkPutsFull up.
func MarkNames() []string {
	return []string{
		"puts-full", "peers-full", "peer-unfit",
		"stopped-asking", "stopped-moving", "stopped-committing", "answer-overdue", "ask-again", "commit-again",
		"reply-malformed", "reply-after-outcome", "reply-senseless", "all-skipped", "asked-stale", "alloc-failed",
		"unsettled", "transfer-failed", "commit-gone", "tell-again",
		"reply-after-link", "backed-off", "peer-backed-off",
		"backpressure", "offer-again", "offer-orphaned", "offer-over", "ack-lost", "done-malformed", "done-unknown", "done-early",
		"stopped-offered", "withdrawn",
		"host-full", "copy-failed", "copy-unsettled", "stopped-copying", "copied-late", "nobody-there",
	}
}

const _ = uint(markEnd - MarkPutsFull - 38)
