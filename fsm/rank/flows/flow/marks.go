package flow

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	AllocMalformed  effects.Mark
	StrangerRefused effects.Mark
	AllocRefused    effects.Mark
	AskedAgain      effects.Mark
	KeyRepeated     effects.Mark
	Abandoned       effects.Mark
	VanillaOffer    effects.Mark
	OfferedAgain    effects.Mark
	NotReached      effects.Mark
	OfferWithdrawn  effects.Mark
	OfferTooLate    effects.Mark
	ReadLate        effects.Mark
	ReadUnsettled   effects.Mark
	ReadFailed      effects.Mark
	OffersFull      effects.Mark
	OfferDropped    effects.Mark
	OfferExpired    effects.Mark
	OfferRemembered effects.Mark
	VanillaRefused  effects.Mark
	VanillasFull    effects.Mark
	LineCut         effects.Mark
	GoneCut         effects.Mark
	WordsCut        effects.Mark
	TenantForbidden effects.Mark // a message names a chunk of a tenant that its sender or this rank lacks
	OtherTenant     effects.Mark // a command names a chunk of a tenant that this rank lacks
}](12)
