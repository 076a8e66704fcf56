package engine

import "github.com/kvferry/kvferry/effects"

// Marks of Gets.
const (
	MarkGetsFull effects.Mark = 360 + iota
	MarkGetWaits
	MarkGetShort
	MarkReleaseUnknown
	MarkGetLapsed
	MarkGetHopeless
	MarkWakingCut
	MarkGetOver
	markEndGets
)

// GetMarkNames are the names of the marks of Gets, from MarkGetsFull up.
func GetMarkNames() []string {
	return []string{
		"gets-full",
		"get-waits",
		"get-short",
		"release-unknown",
		"get-lapsed",
		"get-unrecoverable",
		"waking-cut",
		"get-over",
	}
}

const _ = uint(markEndGets - MarkGetsFull - 8)
