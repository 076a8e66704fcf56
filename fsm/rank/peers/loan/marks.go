package loan

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	PrefixCut effects.Mark
	ByDone    effects.Mark
	ByTime    effects.Mark
	Revoked   effects.Mark
	Lost      effects.Mark
	ArenaCut  effects.Mark
}](14)
