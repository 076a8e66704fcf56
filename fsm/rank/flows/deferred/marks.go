package deferred

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	FetchShort    effects.Mark
	StartsCut     effects.Mark
	WithdrawalCut effects.Mark
	FetchOver     effects.Mark
}](11)
