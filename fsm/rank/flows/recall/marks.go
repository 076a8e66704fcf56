package recall

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	RecallsFull        effects.Mark
	AskAgain           effects.Mark
	AnswerOverdue      effects.Mark
	AnswerMalformed    effects.Mark
	AnswerSenseless    effects.Mark
	AnswerAfterLink    effects.Mark
	AnswerAfterOutcome effects.Mark
	AskedStale         effects.Mark
	AskRefused         effects.Mark
	NothingThere       effects.Mark
	ReadFailed         effects.Mark
	ReadLate           effects.Mark
	Unsettled          effects.Mark
	Stopped            effects.Mark
	DoneAgain          effects.Mark
	DoneGivenUp        effects.Mark
	QueryMalformed     effects.Mark
	QueryVanilla       effects.Mark
	QueryStranger      effects.Mark
	QueryRefused       effects.Mark
	QueryAgain         effects.Mark
	QueryOther         effects.Mark
	QueryOver          effects.Mark
	EndsCut            effects.Mark
	ServerChanged      effects.Mark // a connection was opened to another identity than the peer has, and is replaced
}](13)
