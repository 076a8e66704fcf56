package layerwise

import "github.com/kvferry/kvferry/effects"

// Marks of this flow.
const (
	MarkRunsFull effects.Mark = 600 + iota
	MarkSavesFull
	MarkNowhere
	MarkByLayer
	MarkAsWhole
	MarkMerged
	MarkSplit
	MarkBlocked
	MarkLayerAgain
	MarkWholeStays
	MarkPreempted
	MarkHalfSent
	MarkRunFailed
	MarkSavedTooLate
	MarkTailSent
	MarkRunForgotten
	MarkRunDrained
	MarkByChunk
	MarkNoRoom
	MarkNarrowed
	markEnd
)

// MarkNames are the names of this flow's marks, from MarkRunsFull up.
func MarkNames() []string {
	return []string{
		"runs-full", "saves-full", "nowhere", "by-layer", "as-whole", "merged", "split", "blocked", "layer-again",
		"whole-stays", "preempted", "half-sent", "run-failed", "saved-too-late", "tail-sent", "run-forgotten", "run-drained",
		"by-chunk", "no-room", "narrowed",
	}
}

const _ = uint(markEnd - MarkRunsFull - 20)
