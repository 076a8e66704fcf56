package outcomes

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	Full    effects.Mark // a request was not recorded, because its class had no share left
	OfOther effects.Mark // a batch named a request that another peer sends
	// An end-of-request message was rejected, because another peer sends the request.
	EndOfOther    effects.Mark
	EndOfFormer   effects.Mark // an end-of-request message belonged to a former attempt
	BatchOfFormer effects.Mark // a batch belonged to an attempt that had already ended
}](19)
