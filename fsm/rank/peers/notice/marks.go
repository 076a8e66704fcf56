package notice

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	HostsFull   effects.Mark // a class had used up its share of addresses or notifications
	DoneGivenUp effects.Mark // a notification was dropped after its last attempt
}](10)
