package end

import "github.com/kvferry/kvferry/effects"

// Marks are the coverage marks of this package.
//
//kvferry:table
var Marks = effects.NewMarks[struct {
	Full      effects.Mark
	Again     effects.Mark
	Untold    effects.Mark
	NotTaken  effects.Mark
	ToldOther effects.Mark
	Malformed effects.Mark
	Stranger  effects.Mark
}](20)
