package control

import (
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// Error says why a Transport could not be made.
type Error struct {
	// Code is Invalid for a wrong setting, Refused if the system would not bind an address, TooMany if the system has
	// no more sockets or files, and Unsupported if this transport cannot do what was asked.
	Code effects.Code
	// What names what was tried, or the wrong setting with the value.
	What string
	// Remedy says what the operator should change.
	Remedy string
	// Cause is the system's own error, or nil.
	Cause error
}

// Error returns one line: what failed, the cause and code, and the remedy.
func (e *Error) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("%s (%s): %s", e.What, e.Code, e.Remedy)
	}
	return fmt.Sprintf("%s: %v (%s): %s", e.What, e.Cause, e.Code, e.Remedy)
}

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }
