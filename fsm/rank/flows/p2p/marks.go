package p2p

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	LookupMalformed effects.Mark
	NotServed       effects.Mark
	VanillaDone     effects.Mark
	NotIntroduced   effects.Mark
	LoansFull       effects.Mark
	GetRefused      effects.Mark
	GetOther        effects.Mark
	GetOver         effects.Mark
	GetAgain        effects.Mark
	BringsFull      effects.Mark
	AskAgain        effects.Mark
	AnswerOverdue   effects.Mark
	AnswerMalformed effects.Mark
	AnswerSenseless effects.Mark
	AnswerAfterLink effects.Mark
	GhostAnswered   effects.Mark
	Refused         effects.Mark
	Failed          effects.Mark
	IntroduceAgain  effects.Mark
	Miss            effects.Mark
	NoRoom          effects.Mark
	CameElsewhere   effects.Mark
	ReadFailed      effects.Mark
	ReadLate        effects.Mark
	Unsettled       effects.Mark
	Stopped         effects.Mark
	DoneAgain       effects.Mark
	DoneGivenUp     effects.Mark
	NamedLate       effects.Mark
	NamedStale      effects.Mark
	NobodyAnswers   effects.Mark
	PushesFull      effects.Mark
	PushTooLate     effects.Mark
	PushUnsettled   effects.Mark
	PushAgain       effects.Mark
	PushFailed      effects.Mark
	PushBuried      effects.Mark
	KeptTooLate     effects.Mark
	KeptFull        effects.Mark
	KeptLost        effects.Mark
	ArenaFull       effects.Mark
	CopyAgain       effects.Mark
	CopyFailed      effects.Mark
	CopyUnsettled   effects.Mark
	CopyLate        effects.Mark
	FrozenPassed    effects.Mark
}](15)
