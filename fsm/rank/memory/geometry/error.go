package geometry

import "strconv"

// A Code is the kind of an Error.
type Code uint8

// The kinds of errors.
const (
	_           Code = iota
	Unusable         // a value of one side is impossible
	Unsupported      // the value is possible, but this package cannot move such a cache
	Mismatch         // the two sides do not fit each other
	BadBlocks        // a list of blocks is impossible
	Uncovered        // the consumer wants blocks or layers that the producer does not have
)

// An Error is the reason why two ranks, or lists of their blocks, cannot be paired.
type Error struct {
	Code   Code
	Side   string // the side that has the field: "producer" or "consumer"; empty if the caller knows the side
	Field  string // the field's name in the code or on the wire
	Value  string
	Remedy string // what was expected, or what to change
}

func (e *Error) Error() string {
	s := "geometry: "
	if e.Side != "" {
		s += e.Side + "'s "
	}
	return s + e.Field + " " + e.Value + ": " + e.Remedy
}

// newError returns an *Error without a side.
func newError(code Code, field, value, remedy string) error {
	return &Error{Code: code, Field: field, Value: value, Remedy: remedy}
}

// withSide sets the side of an error of this package.
func withSide(side string, err error) error {
	if e, ok := err.(*Error); ok { // errors of this package are never wrapped
		e.Side = side
	}
	return err
}

func formatNumber(n uint64) string { return strconv.FormatUint(n, 10) }

func formatLimits(low, high uint64) string { return formatNumber(low) + " to " + formatNumber(high) }
