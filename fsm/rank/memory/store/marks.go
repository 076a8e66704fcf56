package store

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	ClaimsFull   effects.Mark
	ClaimExpired effects.Mark
	ClaimsCut    effects.Mark
}](7)
