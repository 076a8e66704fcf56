package sim

// A check is one thing that oracles judge, again and again. How often each did is part of the coverage, and so is how
// often it was void: its occasion came, and nothing could be said. One that is never asked any more, because a hook was
// lost, or that became void everywhere, is found by that.
type check uint8

// judgements say of each check which property it is of, and what it judges. They are filled before anything runs.
var judgements []struct{ property, of string }

func newCheck(property, of string) check {
	if len(judgements) == checksMax {
		panic("BUG: more checks than the coverage has room for")
	}
	judgements = append(judgements, struct{ property, of string }{property, of})
	return check(len(judgements) - 1)
}

// checksMax is how many there may be.
const checksMax = 256

// String is its name in the coverage.
func (c check) String() string { return judgements[c].property + " " + judgements[c].of }

// judged counts that checks say something: that what they look at is as was promised, or else they fail.
func (j *judge) judged(checks ...check) {
	for _, c := range checks {
		j.w.result.Coverage.hit(pointJudged + point(c))
	}
}

// void counts that a check has nothing to say where it might have had.
func (j *judge) void(c check) { j.w.result.Coverage.hit(pointVoid + point(c)) }

// fail ends the run because what a check judges is not as was promised.
func (j *judge) fail(c check, format string, args ...any) {
	j.w.fail(judgements[c].property, format, args...)
}
