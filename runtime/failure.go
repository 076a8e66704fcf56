package runtime

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvferry/kvferry/effects"
)

// An Error is a command that did not end as wanted, or a call that could not be made.
type Error struct {
	Op    string       // what was asked for: "put", "get", "close" ...
	Code  effects.Code // says what to do; see package effects
	Count int          // what Remedy counts, such as pages that are still out
	// Remedy says what helps, where the code alone does not.
	Remedy string
	Cause  error // the context's error where that took the command back; of a fetch that Faulted, its Scatter's
}

func (e *Error) Error() string {
	s := "runtime: " + e.Op + ": " + e.Code.String()
	if e.Remedy != "" {
		s += ": " + e.Remedy
	}
	if e.Cause != nil {
		s += fmt.Sprintf(" (%v)", e.Cause)
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is says that what expired is a context.DeadlineExceeded, whoever set the deadline, and what was cancelled a context.Canceled.
func (e *Error) Is(target error) bool {
	return target == context.DeadlineExceeded && e.Code == effects.Expired || target == context.Canceled && e.Code == effects.Cancelled
}

// CodeOf returns the code of an error of this package: OK for nil, and Faulted for what came from
// elsewhere.
func CodeOf(err error) effects.Code {
	var e *Error
	switch {
	case err == nil:
		return effects.OK
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.DeadlineExceeded):
		return effects.Expired
	case errors.Is(err, context.Canceled):
		return effects.Cancelled
	}
	return effects.Faulted
}

func invalid(op, format string, args ...any) *Error {
	return &Error{Op: op, Code: effects.Invalid, Remedy: fmt.Sprintf(format, args...)}
}
