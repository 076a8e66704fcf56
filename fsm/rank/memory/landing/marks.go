package landing

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	AlreadySent    effects.Mark
	Trusted        effects.Mark
	LandedUnknown  effects.Mark
	LandedPartly   effects.Mark
	LandedCorrupt  effects.Mark
	LandedLate     effects.Mark
	FillLostRace   effects.Mark
	GrantExpired   effects.Mark
	WriterLost     effects.Mark
	CommitRepeated effects.Mark
	CommitLate     effects.Mark
	GrantAborted   effects.Mark
	GrantAbandoned effects.Mark
	TakenBefore    effects.Mark
	VerifyBegun    effects.Mark
	VerifyAgain    effects.Mark
	VerifyUnwanted effects.Mark
	LandedHeld     effects.Mark
}](9)
