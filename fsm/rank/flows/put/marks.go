package put

import "github.com/kvferry/kvferry/effects"

// Marks of what both sources of puts share.
const (
	MarkPeersFull effects.Mark = 200 + iota
	MarkPeerUnfit
	MarkAnswerOverdue
	MarkReplyMalformed
	MarkReplyAfterOutcome
	MarkReplySenseless
	MarkAllSkipped
	MarkAskedStale
	MarkAllocFailed
	MarkStoppedCommitting
	MarkBackedOff
	MarkPeerBackedOff
	MarkNobodyThere
	MarkAsksCut
	markEnd
)

// MarkNames are their names, from MarkPeersFull up.
func MarkNames() []string {
	return []string{
		"peers-full", "peer-unfit", "answer-overdue", "reply-malformed", "reply-after-outcome", "reply-senseless",
		"all-skipped", "asked-stale", "alloc-failed", "stopped-committing", "backed-off", "peer-backed-off",
		"nobody-there", "asks-cut",
	}
}

const _ = uint(markEnd - MarkPeersFull - 14)
