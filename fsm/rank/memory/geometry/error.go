package geometry

import "strconv"

// A Code is the kind of an Error.
type Code uint8

// The kinds of refusals.
const (
	_           Code = iota
	Unusable         // what one side says of itself cannot be
	Unsupported      // it can be, and nothing here moves it
	Mismatch         // the two sides do not fit each other
	BadBlocks        // a list of blocks cannot be
	Uncovered        // the consumer wants what the producer does not have
)

// An Error says why two ranks, or lists of their blocks, do not pair.
type Error struct {
	Code   Code
	Side   string // whose field it is: "producer" or "consumer"; empty if the caller knows
	Field  string // as the code or the wire has it
	Value  string
	Remedy string // what was expected, or is to be changed
}

func (e *Error) Error() string {
	s := "geometry: "
	if e.Side != "" {
		s += e.Side + "'s "
	}
	return s + e.Field + " " + e.Value + ": " + e.Remedy
}

func refuse(code Code, field, value, remedy string) error {
	return &Error{Code: code, Field: field, Value: value, Remedy: remedy}
}

// of says whose error it is.
func of(side string, err error) error {
	if e, ok := err.(*Error); ok { // Ours are never wrapped.
		e.Side = side
	}
	return err
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func between(least, most uint64) string { return number(least) + " to " + number(most) }
