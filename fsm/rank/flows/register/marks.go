package register

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	ReceptionsFull        effects.Mark
	AskAgain              effects.Mark
	OtherLife             effects.Mark
	GrantsFull            effects.Mark
	AnswerSenseless       effects.Mark
	Refused               effects.Mark
	ExpiredEarly          effects.Mark
	IntroduceAgain        effects.Mark
	SaidWhole             effects.Mark
	AnswerOverdue         effects.Mark
	LandedPartly          effects.Mark
	LandedUnasked         effects.Mark
	WriterLost            effects.Mark
	GrantOver             effects.Mark
	Withdrawn             effects.Mark
	WithdrawnAgain        effects.Mark
	ErrandsFull           effects.Mark
	KeepFailed            effects.Mark
	BatchesFull           effects.Mark
	NotNeeded             effects.Mark
	LeaseOver             effects.Mark
	Aborted               effects.Mark
	OtherConsumer         effects.Mark
	RankTwice             effects.Mark
	RegistrationMalformed effects.Mark
	Stranger              effects.Mark
	RegisteredAgain       effects.Mark
	AnsweredAgain         effects.Mark
	TooLate               effects.Mark
	OtherEngine           effects.Mark
	RegistrationsFull     effects.Mark
	Parked                effects.Mark
	ParkedLong            effects.Mark
	AskerLost             effects.Mark
	Ambiguous             effects.Mark
	Uncovered             effects.Mark
	TakenBack             effects.Mark
	TakenBackAgain        effects.Mark
	TakenBackFirst        effects.Mark
	WriteUnsettled        effects.Mark
	WriteFailed           effects.Mark
}](18)
