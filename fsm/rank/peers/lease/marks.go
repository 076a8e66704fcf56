package lease

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	RenewGone       effects.Mark // a renewal named a lease that has ended
	RenewCapped     effects.Mark // a lease had reached its longest lifetime
	Renewed         effects.Mark // a reply extended a lease of this node
	ToldGone        effects.Mark // a reply stated that a lease of this node is gone
	RenewNowhere    effects.Mark // a sender announced an address that cannot be used
	RenewStale      effects.Mark // a completion of a former address or sender arrived
	RenewUnanswered effects.Mark // a renewal request got no usable reply
}](5)
