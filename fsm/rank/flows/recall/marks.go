package recall

import "github.com/kvferry/kvferry/effects"

// Marks of this flow.
const (
	MarkRecallsFull effects.Mark = 440 + iota
	MarkAskAgain
	MarkAnswerOverdue
	MarkAnswerMalformed
	MarkAnswerSenseless
	MarkAnswerAfterLink
	MarkAnswerAfterOutcome
	MarkAskedStale
	MarkAskRefused
	MarkNothingThere
	MarkReadFailed
	MarkReadLate
	MarkUnsettled
	MarkStopped
	MarkDoneAgain
	MarkDoneGivenUp
	MarkQueryMalformed
	MarkQueryPlain
	MarkQueryStranger
	MarkQueryRefused
	MarkQueryAgain
	MarkQueryOther
	MarkQueryOver
	MarkEndsCut
	markEnd
)

// MarkNames are the names of this flow's marks, from MarkRecallsFull up.
func MarkNames() []string {
	return []string{
		"recalls-full", "ask-again", "answer-overdue", "answer-malformed", "answer-senseless", "answer-after-link",
		"answer-after-outcome", "asked-stale", "ask-refused", "nothing-there", "read-failed", "read-late", "unsettled",
		"stopped", "done-again", "done-given-up", "query-malformed", "query-vanilla", "query-stranger", "query-refused",
		"query-again", "query-other", "query-over", "ends-cut",
	}
}

const _ = uint(markEnd - MarkRecallsFull - 24)
