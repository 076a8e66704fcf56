package oracle

// A Check is one thing that oracles judge, again and again. How often each did is part of the coverage, and so is how
// often it was void: its occasion came, and nothing could be said. One that is never asked any more, because a hook was
// lost, or that became void everywhere, is found by that.
type Check uint16

// ChecksMax is how many there may be.
const ChecksMax = 320

// judgements say of each check which property it is of, and what it judges. They are filled before anything runs.
var judgements []struct{ property, of string }

// NewCheck names one more, by the property that breaks where it fails, and by what it judges. It is for variables of
// packages: after those are there, nobody may add to them.
func NewCheck(property, of string) Check {
	if len(judgements) == ChecksMax {
		panic("BUG: more checks than the coverage has room for")
	}
	judgements = append(judgements, struct{ property, of string }{property, of})
	return Check(len(judgements) - 1)
}

// Checks are all that there are.
func Checks() []Check {
	all := make([]Check, len(judgements))
	for i := range all {
		all[i] = Check(i)
	}
	return all
}

// Property is what breaks where it fails.
func (c Check) Property() string { return judgements[c].property }

// String is its name in the coverage.
func (c Check) String() string { return judgements[c].property + " " + judgements[c].of }
