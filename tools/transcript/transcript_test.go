package transcript

import (
	"slices"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/kvferry/kvferry/effects"
)

// A directive reports the arguments that the test has not read.
func TestUnread(t *testing.T) {
	args := []datadriven.CmdArg{{Key: "7"}, {Key: "well"}, {Key: "code", Vals: []string{effects.TooMany.String()}},
		{Key: "keys", Vals: []string{"1", "2"}}}
	for name, c := range map[string]struct {
		read func(d Directive) bool
		rest []string
	}{
		"nothing": {func(Directive) bool { return true }, []string{"7", "well", "code=too_many", "keys=(1, 2)"}},
		"a word": {func(d Directive) bool { return d.WordAt(1) == "well" },
			[]string{"7", "code=too_many", "keys=(1, 2)"}},
		"the first one": {func(d Directive) bool { return d.FirstNumber() == 7 },
			[]string{"well", "code=too_many", "keys=(1, 2)"}},
		"numbers": {func(d Directive) bool { return slices.Equal(d.BareNumbers(), []int{7}) },
			[]string{"well", "code=too_many", "keys=(1, 2)"}},
		"whether a word is there": {func(d Directive) bool { return d.HasArg("well") && !d.HasArg("ill") },
			[]string{"7", "code=too_many", "keys=(1, 2)"}},
		"a list": {func(d Directive) bool { return slices.Equal(d.UintValues("keys"), []uint64{1, 2}) },
			[]string{"7", "well", "code=too_many"}},
		"a code": {func(d Directive) bool { return d.CodeValue() == effects.TooMany }, []string{"7", "well", "keys=(1, 2)"}},
		"what is not there": {func(d Directive) bool { return d.IntValue("cod", 3) == 3 && d.Value("key") == "" },
			[]string{"7", "well", "code=too_many", "keys=(1, 2)"}},
		"all": {func(d Directive) bool { return len(d.AllArgs()) == 4 }, nil},
	} {
		d := Directive{&datadriven.TestData{CmdArgs: args}, t, map[int]bool{}}
		if !c.read(d) || !slices.Equal(d.unreadArgs(), c.rest) {
			t.Errorf("who reads %s leaves %v; want %v", name, d.unreadArgs(), c.rest)
		}
	}
}
