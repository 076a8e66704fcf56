package lease

import "github.com/kvferry/kvferry/effects"

// Marks of the reader's end.
const (
	MarkRenewed effects.Mark = 302 + iota
	MarkToldGone
	MarkRenewNowhere
	MarkRenewStale
	MarkRenewUnanswered
	markEndReader
)

// ReaderMarkNames are the names of the marks of the reader's end, from MarkRenewed up.
func ReaderMarkNames() []string {
	return []string{"renewed", "told-gone", "renew-nowhere", "renew-stale", "renew-unanswered"}
}

const _ = uint(markEndReader - MarkRenewed - 5)
