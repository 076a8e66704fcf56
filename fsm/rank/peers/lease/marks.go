package lease

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	RenewGone       effects.Mark
	RenewCapped     effects.Mark
	Renewed         effects.Mark
	ToldGone        effects.Mark
	RenewNowhere    effects.Mark
	RenewStale      effects.Mark
	RenewUnanswered effects.Mark
}](5)
