package staging

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	FetchesFull     effects.Mark
	FetchExpired    effects.Mark
	FetchAborted    effects.Mark
	StagingShort    effects.Mark
	SourcesMixed    effects.Mark
	LeaseOver       effects.Mark
	ReadFailed      effects.Mark
	ReadLate        effects.Mark
	ReadUnsettled   effects.Mark
	ScatterFailed   effects.Mark
	ScatteredLate   effects.Mark
	SourceWithdrawn effects.Mark
	SourceLost      effects.Mark
	StagingCut      effects.Mark
	LossCut         effects.Mark
}](6)
