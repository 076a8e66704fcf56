package put

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	PeersFull         effects.Mark
	PeerUnfit         effects.Mark
	AnswerOverdue     effects.Mark
	ReplyMalformed    effects.Mark
	ReplyAfterOutcome effects.Mark
	ReplySenseless    effects.Mark
	AllSkipped        effects.Mark
	AskedStale        effects.Mark
	AllocFailed       effects.Mark
	StoppedCommitting effects.Mark
	BackedOff         effects.Mark
	PeerBackedOff     effects.Mark
	NobodyThere       effects.Mark
	AsksCut           effects.Mark
}](1)
