package layerwise

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	RunsFull     effects.Mark
	SavesFull    effects.Mark
	Nowhere      effects.Mark
	ByLayer      effects.Mark
	AsWhole      effects.Mark
	Merged       effects.Mark
	Split        effects.Mark
	Blocked      effects.Mark
	LayerAgain   effects.Mark
	WholeStays   effects.Mark
	Preempted    effects.Mark
	HalfSent     effects.Mark
	RunFailed    effects.Mark
	SavedTooLate effects.Mark
	TailSent     effects.Mark
	RunForgotten effects.Mark
	RunDrained   effects.Mark
	ByChunk      effects.Mark
	NoRoom       effects.Mark
	Narrowed     effects.Mark
}](17)
