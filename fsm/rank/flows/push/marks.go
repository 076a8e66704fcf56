package push

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	StoppedAsking  effects.Mark
	StoppedMoving  effects.Mark
	AskAgain       effects.Mark
	CommitAgain    effects.Mark
	Unsettled      effects.Mark
	TransferFailed effects.Mark
	CommitGone     effects.Mark
	ReplyAfterLink effects.Mark
	PutTogether    effects.Mark
	Carried        effects.Mark
	Taken          effects.Mark
}](2)
