package notice

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	HostsFull   effects.Mark
	DoneGivenUp effects.Mark
}](10)
