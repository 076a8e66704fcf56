package control

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// Error is why a Transport could not be made.
type Error struct {
	// Code: Invalid for a wrong setting, Refused where the system would not bind an address,
	// TooMany where it has no more sockets or files.
	Code effects.Code
	// What was tried, or which setting is wrong, with its value.
	What string
	// Remedy says what to change.
	Remedy string
	// Cause is the system's own error, or nil.
	Cause error
}

// Error returns one line: what, why, remedy.
func (e *Error) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("%s (%s): %s", e.What, e.Code, e.Remedy)
	}
	return fmt.Sprintf("%s: %v (%s): %s", e.What, e.Cause, e.Code, e.Remedy)
}

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }
