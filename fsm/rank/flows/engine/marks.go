package engine

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	GetsFull         effects.Mark
	GetWaits         effects.Mark
	GetShort         effects.Mark
	ReleaseUnknown   effects.Mark
	GetLapsed        effects.Mark
	GetUnrecoverable effects.Mark
	WakingCut        effects.Mark
	GetOver          effects.Mark
	ReservesFull     effects.Mark
	ReserveFailed    effects.Mark
	ReleaseInUse     effects.Mark
	RequestsFull     effects.Mark
	RequestEnded     effects.Mark
	PutsFull         effects.Mark
	TellAgain        effects.Mark
	ReservesCut      effects.Mark
	SharesFull       effects.Mark
	WithdrawWaits    effects.Mark
	NoteWithheld     effects.Mark
}](4)
