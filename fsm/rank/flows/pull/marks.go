package pull

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	Backpressure   effects.Mark
	OfferAgain     effects.Mark
	OfferOrphaned  effects.Mark
	OfferOver      effects.Mark
	AckLost        effects.Mark
	DoneMalformed  effects.Mark
	DoneUnknown    effects.Mark
	DoneEarly      effects.Mark
	StoppedOffered effects.Mark
	Withdrawn      effects.Mark
}](3)
