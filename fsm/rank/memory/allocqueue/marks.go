package allocqueue

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	RequestsFull     effects.Mark
	RequestWaits     effects.Mark
	RequestExpired   effects.Mark
	RequesterLost    effects.Mark
	RequestAbandoned effects.Mark
	TenantHeldBack   effects.Mark
}](8)
