package outcomes

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	Full          effects.Mark
	OfOther       effects.Mark
	EndOfOther    effects.Mark
	EndOfFormer   effects.Mark
	BatchOfFormer effects.Mark
}](19)
