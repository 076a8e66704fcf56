package loan

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	PrefixCut effects.Mark // a prefix was shortened to the share of its class
	ByDone    effects.Mark // a loan ended with the reader's done message
	ByTime    effects.Mark // a loan ended with its time
	Revoked   effects.Mark // a loan ended with the confirmation of a revocation
	Lost      effects.Mark // a condemned loan was revoked
	ArenaCut  effects.Mark // a prefix was shortened to the arena pages of its class
}](14)
