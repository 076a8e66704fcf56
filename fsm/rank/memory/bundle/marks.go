package bundle

import "github.com/kvferry/kvferry/effects"

// Marks of this room.
const (
	MarkBundlesFull effects.Mark = 580 + iota
	MarkBundleExpired
	MarkBundleEnded
	MarkEpochBegins
	MarkEpochOver
	MarkLayerLate
	MarkChunkLostRace
	markEnd
)

// MarkNames are the names of this room's marks, from MarkBundlesFull up.
func MarkNames() []string {
	return []string{
		"bundles-full", "bundle-expired", "bundle-ended", "epoch-begins", "epoch-over", "layer-late", "chunk-lost-race",
	}
}

const _ = uint(markEnd - MarkBundlesFull - 7)
