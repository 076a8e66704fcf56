package bundle

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	BundlesFull   effects.Mark
	BundleExpired effects.Mark
	BundleEnded   effects.Mark
	EpochBegins   effects.Mark
	EpochOver     effects.Mark
	LayerLate     effects.Mark
	ChunkLostRace effects.Mark
}](16)
