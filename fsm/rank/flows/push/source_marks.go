package push

import "github.com/kvferry/kvferry/effects"

// Marks of the source.
const (
	MarkStoppedAsking effects.Mark = 220 + iota
	MarkStoppedMoving
	MarkAskAgain
	MarkCommitAgain
	MarkUnsettled
	MarkTransferFailed
	MarkCommitGone
	MarkReplyAfterLink
	MarkPutTogether
	MarkCarried
	MarkTaken
	sourceMarkEnd
)

// SourceMarkNames are their names, from MarkStoppedAsking up.
func SourceMarkNames() []string {
	return []string{
		"stopped-asking", "stopped-moving", "ask-again", "commit-again", "unsettled", "transfer-failed",
		"commit-gone", "reply-after-link", "put-together", "carried", "taken",
	}
}

const _ = uint(sourceMarkEnd - MarkStoppedAsking - 11)
