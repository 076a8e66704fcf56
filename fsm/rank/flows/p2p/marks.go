package p2p

import "github.com/kvferry/kvferry/effects"

// Marks of this flow.
const (
	MarkLookupMalformed effects.Mark = 480 + iota
	MarkNotServed
	MarkPlainDone
	MarkNotIntroduced
	MarkLoansFull
	MarkGetRefused
	MarkGetOther
	MarkGetOver
	MarkGetAgain
	MarkBringsFull
	MarkAskAgain
	MarkAnswerOverdue
	MarkAnswerMalformed
	MarkAnswerSenseless
	MarkAnswerAfterLink
	MarkGhostAnswered
	MarkRefused
	MarkFailed
	MarkIntroduceAgain
	MarkMiss
	MarkNoRoom
	MarkCameElsewhere
	MarkReadFailed
	MarkReadLate
	MarkUnsettled
	MarkStopped
	MarkDoneAgain
	MarkDoneGivenUp
	MarkNamedLate
	MarkNamedStale
	MarkNobodyAnswers
	MarkPushesFull
	MarkPushTooLate
	MarkPushUnsettled
	MarkPushAgain
	MarkPushFailed
	MarkPushBuried
	MarkKeptTooLate
	MarkKeptFull
	MarkKeptLost
	MarkArenaFull
	MarkCopyAgain
	MarkCopyFailed
	MarkCopyUnsettled
	MarkCopyLate
	MarkFrozenPassed
	markEnd
)

// MarkNames are the names of this flow's marks, from MarkLookupMalformed up.
func MarkNames() []string {
	return []string{
		"lookup-malformed", "not-served", "vanilla-done", "not-introduced", "loans-full", "get-refused", "get-other",
		"get-over", "get-again", "brings-full", "ask-again", "answer-overdue", "answer-malformed", "answer-senseless",
		"answer-after-link", "ghost-answered", "refused", "failed", "introduce-again", "miss", "no-room", "came-elsewhere",
		"read-failed", "read-late", "unsettled", "stopped", "done-again", "done-given-up",
		"named-late", "named-stale", "nobody-answers", "pushes-full", "push-too-late", "push-unsettled", "push-again",
		"push-failed", "push-buried", "kept-too-late", "kept-full", "kept-lost",
		"arena-full", "copy-again", "copy-failed", "copy-unsettled", "copy-late", "frozen-passed",
	}
}

const _ = uint(markEnd - MarkLookupMalformed - 46)
